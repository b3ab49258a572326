/* Lines of HTTP headers as libcurl hands them out. */
#ifndef BASE_HEADER_H
#define BASE_HEADER_H

#include "base/str.h"

/* The value if line is a header of that name (in any case), without space around it and the line's end; else the absent
 * string. name "": none. Lies in line. */
struct str header_value(struct str line, const char *name);

#endif
