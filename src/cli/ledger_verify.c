#include "cli/cli.h"
#include "cli/ledger_verbs.h"
#include "cli/view.h"

#include "daemon/config.h"
#include "ledger/verify.h"

#include <inttypes.h>

struct printing {
    const struct ledger_wish *wish;
    const struct registry *registry; /* NULL: not known */
    int64_t printed;
    struct out out;
};

static void print_json(const struct verify_finding *finding)
{
    struct json_out out;
    struct buf text;
    buf_init(&text, 0);
    json_out_init(&out, &text);
    json_out_object(&out);
    json_out_member_text(&out, "table", table_name(finding->table));
    json_out_member_text(&out, "id", finding->id);
    json_out_member_text(&out, "rule", finding->rule);
    json_out_member_text(&out, "found", finding->found);
    json_out_member_text(&out, "expected", finding->expected);
    json_out_end_object(&out);
    printf("%s\n", text.p);
    buf_release(&text);
}

static void print_finding(void *user, const struct verify_finding *finding)
{
    struct printing *printing = user;
    if (printing->printed++ >= printing->wish->max)
        return;
    if (printing->wish->args.json) {
        print_json(finding);
        return;
    }
    out_printf(&printing->out, "%s ", table_name(finding->table));
    out_text(&printing->out, OUT_BOLD, finding->id ? finding->id : "?");
    out_printf(&printing->out, ": %s: ", finding->rule);
    out_text(&printing->out, OUT_RED, finding->found);
    out_printf(&printing->out, "; expected: %s\n", finding->expected);
}

/* The tool as the operation was admitted under leaves nothing out of the fingerprint. */
static bool whole_fingerprint(void *user, const struct operation *op)
{
    const struct printing *printing = user;
    const struct tool *tool = printing->registry ? registry_find(printing->registry, str_of(op->tool)) : NULL;
    return tool && tool->volatile_count == 0 &&
           text_equal(op->policy_version, registry_policy_version(printing->registry));
}

static void sum_up(const struct printing *printing, const struct verify_report *report)
{
    int64_t rows = 0;
    for (int i = 0; i < TABLE_IDS; i++)
        rows += report->rows[i];
    if (printing->wish->args.json) {
        printf("{\"rows\":%" PRId64 ",\"operations\":%" PRId64 ",\"findings\":%" PRId64
               ",\"unsure_fingerprints\":%" PRId64 ",\"unchecked_slices\":%" PRId64 "}\n",
               rows, report->rows[TABLE_OPERATIONS], report->findings, report->unsure_fingerprints,
               report->unchecked_slices);
        return;
    }
    if (report->findings > printing->wish->max)
        printf("and %" PRId64 " more\n", report->findings - printing->wish->max);
    if (report->unsure_fingerprints)
        printf("%" PRId64 " fingerprints are not those of the stored arguments: their tools leave members out "
               "(volatile), or they were changed; --config tells for operations under the registry file as it is\n",
               report->unsure_fingerprints);
    if (report->unchecked_slices)
        printf("%" PRId64 " slices of budgets were not checked: too many count at present\n", report->unchecked_slices);
    if (report->findings)
        printf("%" PRId64 " things are wrong in %" PRId64 " rows\n", report->findings, rows);
    else
        printf("sound: %" PRId64 " rows, %" PRId64 " operations\n", rows, report->rows[TABLE_OPERATIONS]);
}

static int verify_under(const struct ledger_wish *wish, const char *where, const struct registry *registry)
{
    struct printing printing = {.wish = wish, .registry = registry};
    const struct verify_listener listener = {print_finding, whole_fingerprint, &printing};
    struct verify_report report;
    enum bulk_trouble trouble;
    struct bulk *bulk = NULL;
    struct err err = {0};
    out_init(&printing.out, stdout);
    if (bulk_open(where, BULK_LOOK, env_system(), &bulk, &trouble, &err))
        return ledger_trouble(trouble, &err);
    int code = ledger_verify(bulk, &listener, &report, &err) ? ledger_trouble(BULK_OTHER, &err) : CLI_OK;
    if (code == CLI_OK) {
        sum_up(&printing, &report);
        code = report.findings ? CLI_UNSOUND : CLI_OK;
    }
    bulk_close(bulk);
    return code;
}

int ledger_verify_rows(const struct ledger_wish *wish, const char *where)
{
    struct config_report report;
    struct config *config = NULL;
    struct registry *registry = NULL;
    config_report_init(&report);
    if (wish->args.config)
        config_load(wish->args.config, &config, &registry, &report); /* without it less can be told */
    int code = verify_under(wish, where, registry);
    config_report_release(&report);
    registry_unref(registry);
    config_free(config);
    return code;
}
