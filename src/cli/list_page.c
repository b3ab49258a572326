#include "cli/list_page.h"

#include "cli/cli.h"
#include "cli/view.h"

#include <inttypes.h>

#define PAGE_MAX 200 /* asked for at a time */

static void query(struct buf *path, const char *name, const char *value)
{
    if (!value)
        return;
    buf_printf(path, "&%s=", name);
    client_escape(path, value);
}

static void list_path(struct buf *path, const struct list_filter *filter, size_t limit, struct str cursor,
                      struct arena *arena)
{
    buf_printf(path, "/v1/operations?limit=%zu", limit);
    query(path, "status", filter->status);
    query(path, "reason", filter->reason);
    query(path, "tool", filter->tool);
    query(path, "run_id", filter->run);
    query(path, "principal", filter->principal);
    query(path, "cursor", arena_copy_str(arena, cursor));
}

int list_fetch(struct client *client, const struct list_filter *filter, bool json, struct arena *arena,
               struct list_page *page)
{
    struct json *all = json_array(arena);
    struct buf path;
    struct str cursor = STR_NONE;
    int code = CLI_OK;
    buf_init(&path, 0);
    do {
        struct client_answer answer;
        bool asked;
        size_t left = filter->limit - all->count;
        buf_reset(&path);
        list_path(&path, filter, left < PAGE_MAX ? left : PAGE_MAX, cursor, arena);
        struct client_request request = {.method = "GET", .path = path.p};
        code = view_ask(client, &request, arena, &answer, NULL, &asked);
        if (!asked || !view_success(&answer, json, &code))
            goto out;
        const struct json *operations = json_get(answer.json, "operations");
        for (uint32_t i = 0; operations && operations->type == JSON_ARRAY && i < operations->count; i++)
            json_append(arena, all, operations->items[i]);
        cursor = json_get_text(answer.json, "next");
    } while (cursor.n > 0 && all->count < filter->limit);
    *page = (struct list_page){.operations = all, .more = cursor.n > 0, .next = cursor};
out:
    buf_release(&path);
    return code;
}

void list_print(struct out *out, const struct list_page *page, int64_t now_ms, struct arena *arena)
{
    static const char *const heads[] = {"OPERATION", "TOOL", "STATUS", "REASON", "REQUESTS", "AGE", "EXTERNAL ID"};
    struct out_table table;
    if (page->operations->count == 0) {
        out_printf(out, "no operations\n");
        return;
    }
    out_table_init(&table, arena, heads, sizeof heads / sizeof heads[0]);
    for (uint32_t i = 0; i < page->operations->count; i++) {
        const struct json *op = &page->operations->items[i];
        struct out_cell *cells = out_table_row(&table);
        char span[OUT_SPAN_SIZE] = "";
        int64_t ms;
        cells[0].text = json_get_text(op, "operation_id");
        cells[1].text = json_get_text(op, "tool");
        cells[2].text = json_get_text(op, "status");
        cells[2].style = view_state_style(cells[2].text);
        cells[3].text = json_get_text(op, "reason");
        cells[4].text = str_of(arena_printf(arena, "%" PRId64, json_get_int(op, "attempts", 0)));
        if (out_parse_time(json_get_text(op, "created_at"), &ms))
            out_span(now_ms - ms, span);
        cells[5].text = str_of(arena_copy_text(arena, span));
        cells[6].text = json_get_text(op, "external_id");
    }
    out_table_print(out, &table);
    if (page->more)
        out_printf(out, "there are more; --limit N shows more of them\n");
}

void list_print_json(const struct list_page *page, FILE *file)
{
    struct buf text;
    struct json_out out;
    buf_init(&text, 0);
    json_out_init(&out, &text);
    json_out_object(&out);
    json_out_name(&out, "operations");
    json_out_value(&out, page->operations);
    json_out_name(&out, "next");
    json_out_str(&out, page->next);
    json_out_end_object(&out);
    fprintf(file, "%s\n", text.p);
    buf_release(&text);
}
