/* Scenario files of `onced eval`: any text is read or refused with a reason and a place; what is read is played by the
 * real engine, and a verdict never contradicts the operations that it is about. */
#include "base/log.h"
#include "cli/eval_judge.h"
#include "daemon/config.h"
#include "fuzz.h"

#define PLAYED_GROUPS_MAX 4 /* enough to matter, few enough to be quick */

static const char registry_text[] =
    "onced: 1\n"
    "providers: {p: {base_url: 'http://127.0.0.1:9', key: {header: K, retention: 1h}}}\n"
    "tools:\n"
    "  key: {description: d, class: external_idempotent, provider: p, key: 'k:{a}',\n"
    "        normalize: {a: trim}, volatile: [/v], request: {path: '/{a}'}}\n"
    "  weak: {description: d, class: external_weak, provider: p, request: {path: /w},\n"
    "         lookup: {request: {path: /w}, items: /d, match: {/r: '{$operation}'}}}\n"
    "  read: {description: d, class: read, provider: p, request: {path: /r}}\n";

static void check_report(const struct config_report *report, enum err_code code)
{
    CHECK((code == ERR_NONE) == (report->errors == 0));
    for (size_t i = 0; i < report->count; i++)
        CHECK(report->items[i].line > 0 && report->items[i].column > 0 && *report->items[i].text);
}

static void check_file(const struct eval_file *file)
{
    CHECK(file->group_count > 0 && file->group_count <= EVAL_GROUPS_MAX);
    for (size_t g = 0; g < file->group_count; g++) {
        const struct eval_group *group = &file->groups[g];
        CHECK(group->name && group->call_count > group->first && group->call_count <= EVAL_CALLS_MAX);
        for (size_t c = 0; c < group->call_count; c++) {
            const struct eval_call *call = &group->calls[c];
            CHECK(call->tool && call->tenant && call->principal && call->line > 0);
            CHECK(!call->arguments == !!call->arguments_text.p);
            CHECK(call->repeat_of.call <= c && (c == 0 || call->at_ms >= call[-1].at_ms));
        }
    }
}

/* What "holds" says about the operations. */
static void check_verdict(const struct eval_verdict *verdict)
{
    const struct eval_group *group = verdict->group;
    const struct eval_result *results = verdict->results;
    CHECK(verdict->finding_count <= group->call_count);
    for (size_t i = 0; i < verdict->finding_count; i++)
        CHECK(verdict->findings[i].why && verdict->findings[i].earlier <= verdict->findings[i].later);
    for (size_t i = group->first; i < group->call_count && !verdict->finding_count; i++) {
        for (size_t j = group->first; j < i; j++) {
            bool same = strcmp(results[i].operation, results[j].operation) == 0;
            CHECK(group->expectation != EXPECT_DISTINCT || !same);
            CHECK(group->expectation != EXPECT_SAME || same);
        }
        CHECK(group->expectation != EXPECT_REFUSED || results[i].answer == ANSWER_REFUSED);
    }
}

static void play(const struct eval_file *file, struct registry *registry)
{
    struct eval_world *world = NULL;
    struct arena arena;
    struct err err = {0};
    arena_init(&arena);
    CHECK(eval_world_new(registry, &world, &err) == ERR_NONE);
    for (size_t g = 0; g < file->group_count && g < PLAYED_GROUPS_MAX; g++) {
        struct eval_verdict verdict;
        eval_judge(world, &file->groups[g], &arena, &verdict);
        check_verdict(&verdict);
    }
    eval_world_free(world);
    arena_release(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str text = {size ? (const char *)data : "", size};
    struct config_report report, registry_report, check;
    struct registry *registry = NULL;
    struct eval_file *file = NULL;
    log_set_level(LOG_OFF);
    config_report_init(&report);
    config_report_init(&registry_report);
    config_report_init(&check);
    enum err_code code = eval_file_load_text("f", text, &file, &report);
    check_report(&report, code);
    CHECK((code == ERR_NONE) == (file != NULL));
    if (file) {
        check_file(file);
        CHECK(config_load_text("r", str_of(registry_text), NULL, &registry, &registry_report) == ERR_NONE);
        code = eval_file_check(file, registry, &check);
        check_report(&check, code);
        if (!code)
            play(file, registry);
    }
    registry_unref(registry);
    eval_file_free(file);
    config_report_release(&report);
    config_report_release(&registry_report);
    config_report_release(&check);
    return 0;
}
