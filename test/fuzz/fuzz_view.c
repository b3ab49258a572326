/* What a server answers, as the command line shows it: whatever it is, nothing reaches the terminal but printable text
 * and line ends, and the exit code is one that is documented. First byte: which view; the rest: the answer's body. */
#include "fuzz.h"

#include "cli/timeline.h"
#include "cli/view.h"

#define NOW_MS INT64_C(1790000000000)

static void check_text(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        CHECK((c >= 0x20 && c != 0x7f) || c == '\n');
        CHECK(!(c == 0xc2 && i + 1 < n && (unsigned char)text[i + 1] < 0xa0)); /* C1 controls in UTF-8 */
    }
}

/* As `onced trace` does it. */
static const struct json *list_of(const struct json *object, const char *name)
{
    static const struct json none = {.type = JSON_ARRAY};
    const struct json *value = json_get(object, name);
    return value && value->type == JSON_ARRAY ? value : &none;
}

static void show(struct out *out, unsigned char view, const struct json *value, struct client_answer *answer)
{
    struct arena arena;
    arena_init(&arena);
    switch (view % 5) {
    case 0:
        view_operation(out, value, true);
        view_next(out, value);
        CHECK(*view_effect(value));
        CHECK(view_operation_exit(value) >= 0 && view_operation_exit(value) < 64);
        break;
    case 1:
        view_problem(out, answer);
        CHECK(view_problem_exit(answer) > 0 && view_problem_exit(answer) < 64);
        break;
    case 2: {
        struct trace trace = {value, list_of(value, "events"), list_of(value, "attempts")};
        trace_print(out, &trace, NOW_MS);
        break;
    }
    case 3: out_json(out, value, 2); break;
    case 4: out_field(out, "time", view_time(&arena, value, "created_at", NOW_MS)); break;
    }
    arena_release(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const long statuses[] = {200, 400, 401, 404, 409, 422, 429, 500, 503, 0};
    struct arena arena;
    struct json *value;
    struct err err = {0};
    if (size < 2)
        return 0;
    arena_init(&arena);
    struct str body = {(const char *)data + 1, size - 1};
    if (json_parse(&arena, body, NULL, &value, &err) == ERR_NONE && value->type == JSON_OBJECT) {
        char *text = NULL;
        size_t n = 0;
        struct out out = {.file = open_memstream(&text, &n), .columns = data[0] & 0x40 ? 80 : 0};
        struct client_answer answer = {.status = statuses[data[0] / 5 % 10], .text = body, .json = value};
        CHECK(out.file);
        show(&out, data[0], value, &answer);
        fclose(out.file);
        check_text(text, n);
        free(text);
    }
    arena_release(&arena);
    return 0;
}
