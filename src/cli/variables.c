#include "cli/variables.h"

#include "daemon/config.h"

#include <stdlib.h>

void variables_assume(const char *path)
{
    static const char reference[] = "${env:";
    struct config_report ignored;
    struct buf text;
    buf_init(&text, CONFIG_BYTES_MAX);
    config_report_init(&ignored);
    if (config_read_file(path, "a registry file", &text, &ignored) == ERR_NONE) {
        for (const char *p = buf_str(&text).p; (p = strstr(p, reference));) {
            p += sizeof reference - 1;
            char name[256];
            size_t n = strcspn(p, "}:\n");
            if (p[n] != '}' || n == 0 || n >= sizeof name)
                continue; /* with a default of its own, or broken: config_load tells */
            memcpy(name, p, n);
            name[n] = '\0';
            setenv(name, "http://not-set.invalid", 0);
        }
    }
    config_report_release(&ignored);
    buf_release(&text);
}
