/* Multi-step tools in the registry file: every message with its place, and what is made of the list. */
#include "core/playbook.h"
#include "core/steps.h"
#include "daemon/config.h"

#include "support/test.h"

#include <stdlib.h>

static char *report_text(const struct config_report *report)
{
    char *text = NULL;
    size_t size;
    FILE *file = open_memstream(&text, &size);
    config_report_print(report, file);
    fclose(file);
    return text;
}

/* Five tools, so that the next one starts in line 15: a write with two playbooks, one with none, a dangerous one, a
 * read, and one whose effect the application performs. */
#define PRELUDE                                                                                                        \
    "onced: 1\n"                                                                                                       \
    "providers:\n"                                                                                                     \
    "  keyed: {base_url: \"http://127.0.0.1:1\", key: {header: K, retention: 24h}}\n"                                  \
    "tools:\n"                                                                                                         \
    "  a: {class: external_idempotent, provider: keyed, request: {path: /a}, input_schema: {type: object, required: "  \
    "[x],\n"                                                                                                           \
    "    properties: {x: {type: string}, n: {type: integer}, d: {default: 1}}, additionalProperties: false},\n"        \
    "    compensation: {void: {tool: b, arguments: {}, escalate: E}, back: {tool: b, arguments: {}, escalate: E}}}\n"  \
    "  b: {class: external_idempotent, provider: keyed, request: {path: /b}}\n"                                        \
    "  c: {class: external_irreversible, provider: keyed, request: {path: /c}, approval: none, identity: caller,\n"    \
    "    lookup: {request: {path: /c}}}\n"                                                                             \
    "  r: {class: read, provider: keyed, request: {path: /r}}\n"                                                       \
    "  g: {class: external_weak, guard_mode: {}}\n"                                                                    \
    "  l: {class: external_idempotent, provider: keyed, request: {path: /b},\n"                                        \
    "    compensation: {leave: {tool: b, arguments: {}, escalate: E}}}\n"

/* Loads the tools after the prelude and compares the whole report. The registry is returned when it is valid. */
static struct registry *load(const char *tools, const char *wanted)
{
    struct buf text;
    struct config_report report;
    struct registry *registry = NULL;
    buf_init(&text, 0);
    buf_printf(&text, PRELUDE "%s", tools);
    config_report_init(&report);
    enum err_code code = config_load_text("f", buf_str(&text), NULL, &registry, &report);
    char *got = report_text(&report);
    if (strcmp(got, wanted) != 0)
        print_error("%s\nwanted:\n%s\ngot:\n%s", buf_str(&text).p, wanted, got);
    assert_string_equal(got, wanted);
    assert_int_equal(code != ERR_NONE, report.errors > 0);
    assert_int_equal(registry != NULL, report.errors == 0);
    free(got);
    buf_release(&text);
    config_report_release(&report);
    return registry;
}

static void expect(const char *tools, const char *wanted)
{
    registry_unref(load(tools, wanted));
}

/* ---- what is made of it ---- */

static void test_list(void **state)
{
    (void)state;
    struct registry *registry =
        load("  m:\n"
             "    key: \"m:{x}\"\n"
             "    input_schema: {type: object, required: [x], properties: {x: {type: string}}}\n"
             "    steps:\n"
             "      - {name: look, tool: r, arguments: {}}\n"
             "      - {name: first, tool: a, arguments: {x: \"{x}\"}, undo: back, when: .arguments}\n"
             "      - {name: second, tool: b, arguments: '{y: .steps.first.result}', undo: leave}\n"
             "      - {name: third, tool: b, arguments: {z: \"{$steps.second.result.a} {$run}\"}, "
             "undo: escalate}\n"
             "      - {name: last, tool: b, arguments: {z: \"{$operation}\"}}\n"
             "    result: '{id: .steps.last.external_id}'\n",
             "");
    const struct tool *tool = registry_find(registry, STR("m"));
    const struct steps_list *list = tool->steps;
    assert_int_equal(list->count, 5);
    assert_ptr_equal(tool->provider, &steps_provider);
    assert_int_equal(tool->class, CLASS_EXTERNAL_IDEMPOTENT);
    assert_int_equal(tool->reconcile.strategy_count, 1);
    assert_int_equal(tool->reconcile.strategies[0], STRATEGY_MANUAL);
    assert_true(tool->retry.total_ms > 0);
    static const enum steps_undo undos[] = {STEPS_UNDO_NOTHING, STEPS_UNDO_PLAYBOOK, STEPS_UNDO_LEAVE,
                                            STEPS_UNDO_ESCALATE, STEPS_UNDO_ESCALATE};
    static const char *const names[] = {"look", "first", "second", "third", "last"};
    for (size_t i = 0; i < list->count; i++) {
        assert_int_equal(list->items[i].undo, undos[i]);
        assert_string_equal(list->items[i].name, names[i]);
        assert_ptr_equal(steps_find(list, names[i]), &list->items[i]);
    }
    assert_string_equal(list->items[1].playbook, "back");
    assert_null(list->items[2].playbook);
    assert_true(list->items[1].when && !list->items[2].when);
    assert_true(list->items[1].form && !list->items[1].arguments);
    assert_true(!list->items[2].form && list->items[2].arguments);
    assert_non_null(list->result);
    assert_int_equal(strlen(list->digest), 12);
    assert_null(registry_find(registry, STR("a"))->steps);
    registry_unref(registry);
}

/* The digest tells lists apart, however they are written. */
static const char *digest_of(struct registry **registry, const char *steps)
{
    char text[500];
    snprintf(text, sizeof text, "  m: {steps: [%s]}\n", steps);
    *registry = load(text, "");
    return registry_find(*registry, STR("m"))->steps->digest;
}

static void test_digest(void **state)
{
    (void)state;
    struct registry *one, *two, *three;
    const char *digest = digest_of(&one, "{name: s, tool: b, arguments: {x: 1}}");
    assert_string_equal(digest, digest_of(&two, "{arguments: {\"x\": 1}, tool: \"b\", name: s}"));
    assert_string_not_equal(digest, digest_of(&three, "{name: s, tool: b, arguments: {x: 2}}"));
    /* What people agreed to was this list. */
    const char *agreed = registry_find(one, STR("m"))->approval.policy;
    assert_string_equal(agreed, registry_find(two, STR("m"))->approval.policy);
    assert_string_not_equal(agreed, registry_find(three, STR("m"))->approval.policy);
    registry_unref(one);
    registry_unref(two);
    registry_unref(three);
}

/* Tools may be named before they are defined; the most dangerous step decides. */
static void test_class(void **state)
{
    (void)state;
    struct registry *registry = load("  m:\n"
                                     "    key: \"m:{x}\"\n"
                                     "    class: external_irreversible\n"
                                     "    steps:\n"
                                     "      - {name: one, tool: c, arguments: {}, undo: leave}\n"
                                     "      - {name: two, tool: later, arguments: {}}\n"
                                     "  later: {class: internal_write, provider: keyed, request: {path: /l}}\n",
                                     "");
    assert_int_equal(registry_find(registry, STR("m"))->class, CLASS_EXTERNAL_IRREVERSIBLE);
    registry_unref(registry);
    expect("  m: {class: external_weak, steps: [{name: one, tool: b, arguments: {}}]}\n",
           "f:15:7: /tools/m/class: a multi-step tool has the class of the most dangerous of its steps, "
           "external_idempotent (b): leave class out\n");
    expect("  m: {steps: [{name: one, tool: r, arguments: {}}]}\n",
           "f:15:7: /tools/m/steps: change nothing (class read): there is nothing to keep whole, call the tools "
           "themselves\n");
    expect("  m: {steps: [{name: one, tool: c, arguments: {}}]}\n",
           "f:15:7: /tools/m/steps: of class external_irreversible are among them: such a tool needs a business key "
           "(key) or identity: caller\n");
}

/* ---- members ---- */

static void test_members(void **state)
{
    (void)state;
    expect("  m: {steps: []}\n", "f:15:7: /tools/m/steps: is empty, expected at least one step\n");
    expect("  m: {steps: {}}\n", "f:15:7: /tools/m/steps: expected a list of at most 32 mappings, found a mapping\n");
    expect("  m: {steps: [1, {name: s, tool: b, arguments: {}}]}\n",
           "f:15:15: /tools/m/steps/0: expected a mapping, found 1\n");
    expect("  m: {steps: [{tol: b, name: A.b}]}\n",
           "f:15:15: /tools/m/steps/0/arguments: is missing, expected a JSON body or a jq program\n"
           "f:15:15: /tools/m/steps/0/tool: is missing, expected a text\n"
           "f:15:16: /tools/m/steps/0/tol: unknown member \"tol\", did you mean \"tool\"?\n"
           "f:15:24: /tools/m/steps/0/name: a step's name is 1 to 64 characters of a-z 0-9 _ -\n");
    expect("  m: {provider: keyed, request: {path: /}, settle: 1s, compensation: {}, audit: true, guard_mode: {},\n"
           "    steps: [{name: s, tool: b, arguments: {}}]}\n",
           "f:15:7: /tools/m/provider: belongs to HTTP providers, MCP servers, providers of commands, mail servers, "
           "databases and their tools; this one is a multi-step tool\n"
           "f:15:24: /tools/m/request: belongs to HTTP providers and their tools; this one is a multi-step tool\n"
           "f:15:44: /tools/m/settle: is not for multi-step tools: it is said at the tools of their steps\n"
           "f:15:56: /tools/m/compensation: is not for multi-step tools: it is said at the tools of their steps\n"
           "f:15:74: /tools/m/audit: is not for multi-step tools: it is said at the tools of their steps\n"
           "f:15:87: /tools/m/guard_mode: belongs to tools of guard mode; this one is a multi-step tool\n");
    expect("  b2: {class: external_idempotent, provider: keyed, request: {path: /}, result: .x}\n",
           "f:15:73: /tools/b2/result: belongs to multi-step tools; this one is an HTTP provider\n");
}

static void test_names(void **state)
{
    (void)state;
    expect("  m:\n"
           "    steps:\n"
           "      - {name: s, tool: b, arguments: {}, undo: leave}\n"
           "      - {name: s, tool: b, arguments: {}, undo: leave}\n"
           "      - {name: t, tool: bb, arguments: {}, undo: leave}\n"
           "      - {name: u, tool: m, arguments: {}, undo: leave}\n"
           "      - {name: v, tool: g, arguments: {}, undo: leave}\n"
           "      - {name: w, tool: l, arguments: {}, undo: leave}\n",
           "f:18:10: /tools/m/steps/1/name: step 1 is called \"s\" already\n"
           "f:19:19: /tools/m/steps/2/tool: there is no tool \"bb\", did you mean \"b\"?\n"
           "f:20:19: /tools/m/steps/3/tool: m is a multi-step tool itself: name the tools of its steps\n"
           "f:21:19: /tools/m/steps/4/tool: g is of guard mode: no application would begin the step\n"
           "f:22:19: /tools/m/steps/5/tool: l has a playbook called \"leave\", which is a rule of steps: give it "
           "another name\n");
    expect("  p: {class: external_idempotent, provider: keyed, request: {path: /}, compensation: {un: {tool: m, "
           "arguments: {}, escalate: E}}}\n"
           "  m: {steps: [{name: s, tool: b, arguments: {}}]}\n",
           "f:15:92: /tools/p/compensation/un/tool: m is a multi-step tool: a playbook runs one that is not\n");
}

/* ---- undo ---- */

static void test_undo(void **state)
{
    (void)state;
    expect("  m:\n"
           "    steps:\n"
           "      - {name: one, tool: a, arguments: {x: \"1\"}}\n"
           "      - {name: two, tool: b, arguments: {}}\n"
           "      - {name: three, tool: a, arguments: {x: \"1\"}, undo: bak}\n"
           "      - {name: four, tool: b, arguments: {}, undo: void}\n"
           "      - {name: five, tool: r, arguments: {}, undo: escalate}\n"
           "      - {name: six, tool: r, arguments: {}, undo: leave}\n"
           "      - {name: last, tool: b, arguments: {}}\n",
           "f:17:9: /tools/m/steps/0: does not say what becomes of it when a later step fails, expected undo: void, "
           "back, leave or escalate\n"
           "f:18:9: /tools/m/steps/1: does not say what becomes of it when a later step fails, expected undo: leave or "
           "escalate\n"
           "f:19:53: /tools/m/steps/2/undo: a has no playbook \"bak\", expected void, back, leave or escalate\n"
           "f:20:46: /tools/m/steps/3/undo: b has no playbook \"void\", expected leave or escalate\n"
           "f:21:46: /tools/m/steps/4/undo: r changes nothing (class read): there is nothing to undo\n");
}

/* ---- arguments ---- */

static void test_places(void **state)
{
    (void)state;
    expect(
        "  m:\n"
        "    input_schema: {type: object, required: [q], properties: {q: {type: string}, o: {type: string}},\n"
        "      additionalProperties: false}\n"
        "    steps:\n"
        "      - {name: one, tool: b, arguments: {x: \"{$steps.one.result}\", y: \"{$steps.two.result}\"}, undo: "
        "leave}\n"
        "      - {name: two, tool: b, arguments: {x: \"{$steps.on.result}\", y: [\"{$steps.one.resul}\"], z: "
        "\"{$steps}\"}, "
        "undo: leave}\n"
        "      - {name: three, tool: b, arguments: {x: \"{$key}\", y: \"{$operation.x}\", z: \"{q} {r}\", o: "
        "\"{o}\"}, undo: "
        "leave, when: 'true'}\n"
        "      - {name: four, tool: b, arguments: {x: \"{$steps.three.result}\", y: \"{$steps.three.status}\", z: "
        "\"{\"}, "
        "undo: leave}\n"
        "      - {name: five, tool: b, arguments: 'x +', when: '| x'}\n",
        "f:19:42: /tools/m/steps/0/arguments/x: step \"one\" is not over then: only steps before this one can be used\n"
        "f:19:68: /tools/m/steps/0/arguments/y: step \"two\" is not over then: only steps before this one can be used\n"
        "f:20:42: /tools/m/steps/1/arguments/x: there is no step \"on\", did you mean \"one\"?\n"
        "f:20:71: /tools/m/steps/1/arguments/y/0: \"{$steps.one.resul}\": a step has status, result, external_id, "
        "operation_id and arguments, no \"resul\"\n"
        "f:20:94: /tools/m/steps/1/arguments/z: \"{$steps}\" does not name a step, expected {$steps.NAME.…}\n"
        "f:21:44: /tools/m/steps/2/arguments/x: \"{$key}\" is no place of a step, expected {argument}, "
        "{$steps.NAME.…}, {$operation} or {$run}\n"
        "f:21:57: /tools/m/steps/2/arguments/y: \"{$operation.x}\" is no place of a step, expected {argument}, "
        "{$steps.NAME.…}, {$operation} or {$run}\n"
        "f:21:78: /tools/m/steps/2/arguments/z: input_schema has no member \"r\", did you mean \"q\"?\n"
        "f:21:92: warning: /tools/m/steps/2/arguments/o: input_schema does not require \"o\": in calls without it this "
        "step fails\n"
        "f:22:43: warning: /tools/m/steps/3/arguments/x: step \"three\" may be skipped (when): this step fails then, "
        "for there is nothing to fill in\n"
        "f:22:99: /tools/m/steps/3/arguments/z: column 1: \"{\" is not closed; write \"{{\" for a literal brace\n"
        "f:23:31: /tools/m/steps/4/arguments: syntax error, unexpected ')' (Unix shell quoting issues?)\n"
        "f:23:49: /tools/m/steps/4/when: syntax error, unexpected '|' (Unix shell quoting issues?)\n");
}

static void test_arguments_fit(void **state)
{
    (void)state;
    expect("  m:\n"
           "    steps:\n"
           "      - {name: one, tool: a, arguments: {n: 1, y: 2}, undo: back}\n"
           "      - {name: two, tool: a, arguments: [], undo: back}\n"
           "      - {name: three, tool: a, arguments: .arguments}\n",
           "f:17:30: /tools/m/steps/0/arguments: does not give \"x\", which a requires\n"
           "f:17:48: /tools/m/steps/0/arguments/y: a has no argument \"y\"\n"
           "f:18:30: /tools/m/steps/1/arguments: expected a mapping with {places}, or a jq program\n");
}

static void test_what_lands_late_is_told(void **state)
{
    (void)state;
    expect(
        "  m:\n"
        "    identity: caller\n"
        "    retain: 24h\n"
        "    steps:\n"
        "      - {name: one, tool: c, arguments: {}}\n",
        "f:19:21: warning: /tools/m/steps/0/tool: the watch of c goes on after retain of m has ended: an effect that "
        "lands then is an incident of the step alone\n");
    expect("  m:\n"
           "    identity: caller\n"
           "    retain: 25h\n"
           "    steps:\n"
           "      - {name: one, tool: c, arguments: {}}\n",
           "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list),
        cmocka_unit_test(test_digest),
        cmocka_unit_test(test_class),
        cmocka_unit_test(test_members),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_undo),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_arguments_fit),
        cmocka_unit_test(test_what_lands_late_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
