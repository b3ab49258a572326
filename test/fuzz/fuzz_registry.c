/* Registry files: any text either loads or is refused with a reason and a place. Behind a line "%%" an input may have
 * what MCP servers list, as JSON: it never makes a good file a bad one. Nothing is sent; files named by ${file:…} are
 * not read (such inputs are left out). */
#include "daemon/config.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_report(const struct config_report *report, enum err_code code)
{
    size_t errors = 0;
    for (size_t i = 0; i < report->count; i++) {
        const struct config_problem *item = &report->items[i];
        if (!item->line || !item->column || !*item->text)
            abort();
        if (i > 0 && item->line < item[-1].line)
            abort();
        errors += !item->warning;
    }
    if ((code == ERR_NONE) != (report->errors == 0) || errors > report->errors)
        abort();
}

static enum err_code load(struct str text, const struct json *catalog)
{
    struct config_report report;
    struct config *config = NULL;
    struct registry *registry = NULL;
    config_report_init(&report);
    enum err_code code = config_load_text_with("f", text, catalog, &config, &registry, &report);
    check_report(&report, code);
    if ((code == ERR_NONE) != (config && registry))
        abort();
    for (size_t i = 0; registry && i < registry_tool_count(registry); i++) {
        const struct tool *tool = registry_tool_at(registry, i);
        if (registry_find(registry, str_of(tool->name)) != tool || !tool->provider || !tool->adapter_tool)
            abort();
    }
    registry_unref(registry);
    config_free(config);
    config_report_release(&report);
    return code;
}

static void load_with_lists(struct str text, struct str lists, bool good)
{
    struct arena arena;
    struct json *catalog;
    struct err err = {0};
    arena_init(&arena);
    if (json_parse(&arena, lists, NULL, &catalog, &err) == ERR_NONE && load(text, catalog) != ERR_NONE && good)
        abort();
    arena_release(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char mark[] = "\n%%\n";
    struct str text = {size ? (const char *)data : "", size};
    if (memmem(text.p, text.n, "file", 4))
        return 0;
    const char *behind = memmem(text.p, text.n, mark, sizeof mark - 1);
    struct str file = {text.p, behind ? (size_t)(behind - text.p) + 1 : text.n};
    enum err_code code = load(file, NULL);
    if (behind) {
        struct str lists = {behind + sizeof mark - 1, (size_t)(text.p + text.n - behind) - (sizeof mark - 1)};
        load_with_lists(file, lists, code == ERR_NONE);
    }
    return 0;
}
