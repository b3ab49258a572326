/* Registry files: any text either loads or is refused with a reason and a place. Nothing is sent; files named by
 * ${file:…} are not read (such inputs are left out). */
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str text = {size ? (const char *)data : "", size};
    struct config_report report;
    struct config *config = NULL;
    struct registry *registry = NULL;
    if (memmem(text.p, text.n, "file", 4))
        return 0;
    config_report_init(&report);
    enum err_code code = config_load_text("f", text, &config, &registry, &report);
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
    return 0;
}
