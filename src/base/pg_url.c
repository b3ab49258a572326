#include "base/pg_url.h"

#include <libpq-fe.h>
#include <string.h>

bool pg_url_is(const char *text)
{
    return strncmp(text, "postgresql://", 13) == 0 || strncmp(text, "postgres://", 11) == 0;
}

/* Takes the next item of a list with commas. */
static struct str next_item(const char **list)
{
    struct str item = {*list, strcspn(*list, ",")};
    *list += item.n + ((*list)[item.n] == ',');
    return item;
}

/* libpq keeps hosts and ports apart: "h1,h2" and ",5433"; one port may be that of all. */
static const char *places(const char *hosts, const char *ports, struct arena *arena)
{
    const char *all = "", *left = ports;
    bool one = !strchr(ports, ',');
    do {
        struct str host = next_item(&hosts), port = next_item(one ? &(const char *){ports} : &left);
        all = arena_printf(arena, "%s%s%.*s%s%.*s", all, all[0] ? "," : "", (int)host.n, host.p, port.n > 0 ? ":" : "",
                           (int)port.n, port.p);
    } while (*hosts);
    return all;
}

/* libpq looks at them only when it connects. */
static bool ports_are_good(const char *ports)
{
    while (*ports) {
        struct str port = next_item(&ports);
        long number = 0;
        for (size_t i = 0; i < port.n; i++) {
            if (port.p[i] < '0' || port.p[i] > '9' || number > 65535)
                return false;
            number = 10 * number + (port.p[i] - '0');
        }
        if (port.n > 0 && (number < 1 || number > 65535))
            return false;
    }
    return true;
}

const char *pg_url_shown(const char *url, struct arena *arena, const char **fault, bool *secret)
{
    char *words = NULL;
    const char *host = NULL, *port = NULL, *database = NULL;
    PQconninfoOption *options = PQconninfoParse(url, &words);
    *fault = NULL;
    *secret = false;
    if (!options) {
        *fault = words ? arena_copy_str(arena, (struct str){words, strcspn(words, "\n")}) : "no memory";
        PQfreemem(words);
        return "";
    }
    for (const PQconninfoOption *option = options; option->keyword; option++) {
        if (strcmp(option->keyword, "host") == 0 || (strcmp(option->keyword, "hostaddr") == 0 && !host))
            host = option->val;
        else if (strcmp(option->keyword, "port") == 0)
            port = option->val;
        else if (strcmp(option->keyword, "dbname") == 0)
            database = option->val;
        else if (option->val && option->dispchar[0] == '*')
            *secret = true;
    }
    if (port && !ports_are_good(port))
        *fault = "a port is no number from 1 to 65535";
    const char *shown = arena_printf(arena, "postgresql://%s/%s", places(host ? host : "", port ? port : "", arena),
                                     database ? database : "");
    PQconninfoFree(options);
    return shown;
}
