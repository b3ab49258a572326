#include "core/approval.h"

#include "base/json.h"
#include "core/operation.h"

const char *approval_via_name(enum approval_via via)
{
    switch (via) {
#define X(constant, text)                                                                                              \
    case constant: return text;
        APPROVAL_VIAS(X)
#undef X
    }
    return "?";
}

bool approval_via_from_name(struct str text, enum approval_via *out)
{
#define X(constant, name)                                                                                              \
    if (str_is(text, name)) {                                                                                          \
        *out = constant;                                                                                               \
        return true;                                                                                                   \
    }
    APPROVAL_VIAS(X)
#undef X
    return false;
}

/* ---- the record ---- */

struct str approval_request(struct arena *arena, const struct approval_policy *policy, int64_t now_ms)
{
    const struct approval approval = {
        .needed = policy->approvers,
        .expires_ms = now_ms + policy->expires_ms,
        .policy = policy->policy,
    };
    return approval_write(arena, &approval);
}

static enum err_code read_decision(struct arena *arena, const struct json *from, struct approval_decision *out,
                                   struct err *err)
{
    struct str by = json_get_text(from, "by"), decision = json_get_text(from, "decision");
    struct str note = json_get_text(from, "note"), link_by = json_get_text(from, "link_by");
    bool known = str_is(decision, "approve") || str_is(decision, "deny");
    if (!by.p || !known || !approval_via_from_name(json_get_text(from, "via"), &out->via))
        return err_set(err, ERR_INVALID, "a decision of the approval can not be read");
    out->by = arena_copy_str(arena, by);
    out->at_ms = json_get_int(from, "at_ms", 0);
    out->approve = str_is(decision, "approve");
    out->note = note.p ? arena_copy_str(arena, note) : NULL;
    out->link_by = link_by.p ? arena_copy_str(arena, link_by) : NULL;
    return ERR_NONE;
}

enum err_code approval_read(struct arena *arena, struct str text, struct approval *out, struct err *err)
{
    struct json *record;
    *out = (struct approval){0};
    enum err_code code = json_parse(arena, text, &json_limits_kept, &record, err);
    if (code)
        return code;
    if (record->type != JSON_OBJECT)
        return err_set(err, ERR_INVALID, "the approval is no JSON object");
    const struct json *decisions = json_get(record, "decisions");
    int64_t needed = json_get_int(record, "needed", 0);
    struct str policy = json_get_text(record, "policy");
    if (needed < 1 || needed > APPROVERS_MAX || !policy.p || !decisions || decisions->type != JSON_ARRAY ||
        decisions->count > APPROVAL_DECISIONS_MAX)
        return err_set(err, ERR_INVALID, "the approval can not be read");
    out->needed = (unsigned)needed;
    out->expires_ms = json_get_int(record, "expires_ms", 0);
    out->policy = arena_copy_str(arena, policy);
    for (; out->count < decisions->count && !code; out->count++)
        code = read_decision(arena, &decisions->items[out->count], &out->decisions[out->count], err);
    return code;
}

struct str approval_write(struct arena *arena, const struct approval *approval)
{
    struct buf text;
    struct json_out out;
    buf_init(&text, 0);
    json_out_init(&out, &text);
    json_out_object(&out);
    json_out_member_int(&out, "needed", approval->needed);
    json_out_member_int(&out, "expires_ms", approval->expires_ms);
    json_out_member_text(&out, "policy", approval->policy);
    json_out_name(&out, "decisions");
    json_out_array(&out);
    for (size_t i = 0; i < approval->count; i++) {
        const struct approval_decision *decision = &approval->decisions[i];
        json_out_object(&out);
        json_out_member_text(&out, "by", decision->by);
        json_out_member_int(&out, "at_ms", decision->at_ms);
        json_out_member_text(&out, "decision", decision->approve ? "approve" : "deny");
        json_out_member_text(&out, "note", decision->note);
        json_out_member_text(&out, "via", approval_via_name(decision->via));
        if (decision->link_by)
            json_out_member_text(&out, "link_by", decision->link_by);
        json_out_end_object(&out);
    }
    json_out_end_array(&out);
    json_out_end_object(&out);
    struct str copy = arena_str(arena, buf_str(&text));
    buf_release(&text);
    return copy;
}

/* ---- what it says ---- */

unsigned approval_given(const struct approval *approval)
{
    unsigned given = 0;
    for (size_t i = 0; i < approval->count; i++)
        given += approval->decisions[i].approve;
    return given;
}

const struct approval_decision *approval_denial(const struct approval *approval)
{
    for (size_t i = 0; i < approval->count; i++)
        if (!approval->decisions[i].approve)
            return &approval->decisions[i];
    return NULL;
}

const struct approval_decision *approval_by(const struct approval *approval, const char *person)
{
    for (size_t i = 0; i < approval->count; i++)
        if (text_equal(approval->decisions[i].by, person))
            return &approval->decisions[i];
    return NULL;
}

static bool says_yes(const struct approval *approval)
{
    return !approval_denial(approval) && approval_given(approval) >= approval->needed;
}

const struct approval_decision *approval_stands(const struct approval *approval, const char *person)
{
    const struct approval_decision *own = approval_by(approval, person), *denial = approval_denial(approval);
    if (own || denial)
        return own ? own : denial;
    return says_yes(approval) ? &approval->decisions[approval->count - 1] : NULL;
}

bool approval_complete(const struct operation *op)
{
    struct approval approval;
    struct arena arena;
    if (!op->approval.p)
        return true;
    arena_init(&arena);
    bool complete = approval_read(&arena, op->approval, &approval, NULL) == ERR_NONE && says_yes(&approval);
    arena_release(&arena);
    return complete;
}

int64_t approval_open_until(const struct operation *op)
{
    struct approval approval;
    struct arena arena;
    if (!op->approval.p)
        return 0;
    arena_init(&arena);
    bool open = approval_read(&arena, op->approval, &approval, NULL) == ERR_NONE && !approval_denial(&approval) &&
                approval_given(&approval) < approval.needed;
    arena_release(&arena);
    return open ? approval.expires_ms : 0;
}
