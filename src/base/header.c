#include "base/header.h"

#include <strings.h>

struct str header_value(struct str line, const char *name)
{
    size_t length = strlen(name);
    if (length == 0 || line.n <= length || line.p[length] != ':' || strncasecmp(line.p, name, length) != 0)
        return STR_NONE;
    struct str value = {line.p + length + 1, line.n - length - 1};
    while (value.n > 0 && (value.p[0] == ' ' || value.p[0] == '\t'))
        value = (struct str){value.p + 1, value.n - 1};
    while (value.n > 0 && (unsigned char)value.p[value.n - 1] <= ' ')
        value.n--;
    return value;
}
