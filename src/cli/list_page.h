/* Operations by filter, fetched page by page and shown as a table. */
#ifndef CLI_LIST_PAGE_H
#define CLI_LIST_PAGE_H

#include "cli/client.h"
#include "cli/out.h"

#define LIST_LIMIT_MAX 100000

struct list_filter {
    const char *status, *reason, *tool, *run, *principal; /* NULL = any */
    size_t limit;
};

struct list_page {
    const struct json *operations; /* array */
    bool more;                     /* the ledger has more than were asked for */
    struct str next;               /* cursor, absent at the end */
};

/* Follows cursors until `limit` operations are there. Returns an exit code; prints what went wrong. */
int list_fetch(struct client *client, const struct list_filter *filter, bool json, struct arena *arena,
               struct list_page *page);

void list_print(struct out *out, const struct list_page *page, int64_t now_ms, struct arena *arena);
/* {"operations": […], "next": …} on one line. */
void list_print_json(const struct list_page *page, FILE *file);

#endif
