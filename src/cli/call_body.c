#include "cli/call_body.h"

#include <stdio.h>

#define ARGUMENTS_BYTES_MAX (16 * 1024 * 1024)

void call_body_init(struct call_body *body, struct arena *arena)
{
    *body = (struct call_body){.arena = arena, .arguments = json_object(arena), .wait_ms = -1};
}

enum err_code call_body_arg(struct call_body *body, const char *text, struct err *err)
{
    const char *equals = strchr(text, '=');
    struct json *value;
    if (!equals || equals == text)
        return err_set(err, ERR_INVALID, "--arg %s: expected NAME=VALUE", text);
    struct str name = {text, (size_t)(equals - text)}, rest = str_of(equals + 1);
    if (json_parse(body->arena, rest, NULL, &value, NULL) == ERR_NONE)
        json_set(body->arena, body->arguments, name, *value);
    else
        json_set(body->arena, body->arguments, name, json_string(rest));
    return ERR_NONE;
}

enum err_code call_body_args(struct call_body *body, struct str text, struct err *err)
{
    static const struct json_limits limits = {ARGUMENTS_BYTES_MAX, 64, 1000000};
    struct json *value;
    enum err_code code = json_parse(body->arena, text, &limits, &value, err);
    if (code) {
        err_prefix(err, "arguments: ");
        return code;
    }
    if (value->type != JSON_OBJECT)
        return err_set(err, ERR_INVALID, "arguments: expected a JSON object, found %s", json_type_name(value->type));
    for (uint32_t i = 0; i < value->count; i++)
        json_set(body->arena, body->arguments, value->members[i].name, value->members[i].value);
    return ERR_NONE;
}

enum err_code call_body_args_file(struct call_body *body, const char *path, struct err *err)
{
    char part[8192];
    size_t n;
    struct buf text;
    enum err_code code = ERR_NONE;
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "r");
    if (!file)
        return err_set(err, ERR_IO, "--args-file %s: %m", path);
    buf_init(&text, ARGUMENTS_BYTES_MAX);
    while ((n = fread(part, 1, sizeof part, file)) > 0 && !text.over)
        buf_add(&text, part, n);
    if (ferror(file))
        code = err_set(err, ERR_IO, "--args-file %s: cannot be read", path);
    else if (text.over)
        code = err_set(err, ERR_LIMIT, "--args-file %s: larger than %d MiB", path, ARGUMENTS_BYTES_MAX >> 20);
    if (file != stdin)
        fclose(file);
    if (!code)
        code = call_body_args(body, buf_str(&text), err);
    buf_release(&text);
    return code;
}

enum err_code call_body_distinct(struct call_body *body, const char *operation, struct err *err)
{
    if (body->distinct_count == CALL_DISTINCT_MAX)
        return err_set(err, ERR_LIMIT, "--distinct-from can be given %d times at most", CALL_DISTINCT_MAX);
    body->distinct_from[body->distinct_count++] = operation;
    return ERR_NONE;
}

void call_body_write(const struct call_body *body, struct buf *buf)
{
    struct json_out out;
    json_out_init(&out, buf);
    json_out_object(&out);
    json_out_member_text(&out, "tool", body->tool);
    json_out_name(&out, "arguments");
    json_out_value(&out, body->arguments);
    json_out_member_text(&out, "idempotency_key", body->key);
    json_out_member_text(&out, "run_id", body->run);
    json_out_member_text(&out, "step_id", body->step);
    json_out_member_text(&out, "session_id", body->session);
    json_out_member_text(&out, "call_id", body->call);
    json_out_member_text(&out, "workflow", body->workflow);
    json_out_member_text(&out, "not_before", body->not_before);
    json_out_member_text(&out, "repeat_of", body->repeat_of);
    if (body->distinct_count > 0) {
        json_out_name(&out, "distinct_from");
        json_out_array(&out);
        for (size_t i = 0; i < body->distinct_count; i++)
            json_out_text(&out, body->distinct_from[i]);
        json_out_end_array(&out);
    }
    json_out_member_text(&out, "override_reason", body->override_reason);
    if (body->wait_ms >= 0)
        json_out_member_int(&out, "wait_ms", body->wait_ms);
    if (body->dry_run)
        json_out_member_bool(&out, "dry_run", true);
    json_out_end_object(&out);
}
