/* Finding out at the provider what really happened (design 7): one page per request. Whatever does not look exactly as
 * configured is "cannot tell": a wrong "absent" would have the effect happen a second time.
 *
 *   page ─► items ─► which match our marker? ─► counted over all pages (progress)
 *                                                 │ last page
 *             0: absent · several: several · one: verify → failed there | pending | found
 */
#include "adapter/http_parts.h"

#include <stdlib.h>

struct lookup {
    const struct http_tool *tool;
    const struct http_lookup *part;
    const struct http_message *message;
    struct arena *arena;
    struct adapter_answer *answer;
    /* over all pages so far */
    int64_t page;
    unsigned matches;
    struct {                  /* the first match */
        enum outcome outcome; /* what it would mean alone */
        const char *external_id, *detail;
        struct str result;
    } first;
    const char *cursor, *url; /* of the next page; both NULL: there is none */
    const char *last_cursor, *last_url;
};

static void cannot_tell(struct lookup *l, const char *detail)
{
    l->answer->outcome = OUTCOME_CANNOT_TELL;
    l->answer->detail = detail;
}

/* ---- progress between pages ---- */

static bool progress_read(struct lookup *l)
{
    const struct json *progress = l->message->progress;
    l->page = 1;
    l->first.outcome = OUTCOME_ABSENT;
    if (!progress)
        return true;
    struct str outcome = json_get_text(progress, "outcome");
    int64_t matches = json_get_int(progress, "matches", -1);
    l->page = json_get_int(progress, "page", 0) + 1;
    if (l->page < 2 || matches < 0 || matches > 1)
        return false;
    l->matches = (unsigned)matches;
    if (matches == 1 && !outcome_from_name(outcome, &l->first.outcome))
        return false;
    l->first.external_id = arena_copy_str(l->arena, json_get_text(progress, "external_id"));
    l->first.detail = arena_copy_str(l->arena, json_get_text(progress, "detail"));
    l->first.result = json_get_text(progress, "result");
    l->last_cursor = arena_copy_str(l->arena, json_get_text(progress, "cursor"));
    l->last_url = arena_copy_str(l->arena, json_get_text(progress, "url"));
    return true;
}

static void progress_write(struct lookup *l)
{
    struct buf buf;
    struct json_out out;
    buf_init(&buf, 0);
    json_out_init(&out, &buf);
    json_out_object(&out);
    json_out_member_int(&out, "page", l->page);
    json_out_member_int(&out, "matches", l->matches);
    json_out_member_text(&out, "cursor", l->cursor);
    json_out_member_text(&out, "url", l->url);
    if (l->matches > 0) {
        json_out_member_text(&out, "outcome", outcome_name(l->first.outcome));
        json_out_member_text(&out, "external_id", l->first.external_id);
        json_out_member_text(&out, "detail", l->first.detail);
        if (l->first.result.p) {
            json_out_name(&out, "result");
            json_out_str(&out, l->first.result); /* as text: it is only handed through */
        }
    }
    json_out_end_object(&out);
    l->answer->progress = arena_str(l->arena, buf_str(&buf));
    buf_release(&buf);
}

/* ---- one candidate ---- */

static bool candidate_id(struct lookup *l, const struct json *item, const char **id, struct err *err)
{
    const struct http_extract *own = &l->part->external_id, *response = &l->tool->response.external_id;
    const struct json *value = NULL;
    bool stated = own->pointer || own->jq;
    enum err_code code = http_extract_run(stated ? own : response, item, l->arena, &value, err);
    *id = http_id_text(l->arena, value);
    if (!stated) {
        err_clear(err); /* the answer of a look-up need not look like the call's */
        return true;
    }
    if (!*id)
        err_set(err, ERR_INVALID, "is no text or number");
    return code == ERR_NONE && *id;
}

static bool holds(struct jq_program *condition, const struct json *item, bool *truth, struct err *err)
{
    *truth = false;
    return !condition || jq_program_test(condition, item, truth, err) == ERR_NONE;
}

/* What the one match means. False: cannot tell, err says why. */
static bool judge_match(struct lookup *l, const struct json *item, struct err *err)
{
    const struct json *got = NULL, *result = NULL;
    bool pending, failed;
    const struct http_expected *mismatch = http_mismatch(l->message->verify, l->message->verify_count, item, &got);
    l->first.outcome = OUTCOME_FOUND;
    if (mismatch) {
        l->first.outcome = OUTCOME_WRONG_OBJECT;
        l->first.detail = http_mismatch_text(l->arena, mismatch, got);
        return true;
    }
    if (!holds(l->part->failed, item, &failed, err) || !holds(l->part->pending, item, &pending, err))
        return false;
    if (failed)
        l->first.outcome = OUTCOME_FAILED_THERE;
    else if (pending)
        l->first.outcome = OUTCOME_PENDING;
    if (http_extract_run(&l->part->result, item, l->arena, &result, err) != ERR_NONE)
        return false;
    if (result) {
        struct buf buf;
        buf_init(&buf, 0);
        json_write(&buf, result);
        l->first.result = arena_str(l->arena, buf_str(&buf));
        buf_release(&buf);
    }
    return true;
}

/* False: cannot tell (said already). */
static bool count_match(struct lookup *l, const struct json *item)
{
    struct err err = {0};
    const char *id;
    if (!candidate_id(l, item, &id, &err)) {
        cannot_tell(l, arena_printf(l->arena, "external_id of the match: %s", err.text));
        return false;
    }
    /* a list that grows while we turn its pages shows an item twice */
    if (l->matches > 0 && id && l->first.external_id && strcmp(id, l->first.external_id) == 0)
        return true;
    if (++l->matches > 1)
        return true;
    l->first.external_id = id;
    if (!judge_match(l, item, &err)) {
        cannot_tell(l, arena_printf(l->arena, "the match: %s", err.text));
        return false;
    }
    return true;
}

/* ---- answers that are one object ---- */

static bool judge_object(struct lookup *l, const struct json *object)
{
    const struct json *got = NULL;
    if (object->type != JSON_OBJECT) {
        cannot_tell(l, arena_printf(l->arena, "the answer is %s, expected an object", json_type_name(object->type)));
        return false;
    }
    const struct http_expected *mismatch =
        l->message->by_id ? NULL : http_mismatch(l->message->match, l->message->match_count, object, &got);
    if (mismatch) {
        cannot_tell(l,
                    arena_printf(l->arena, "the object is not ours: %s", http_mismatch_text(l->arena, mismatch, got)));
        return false;
    }
    if (!count_match(l, object))
        return false;
    /* asked for by id, another id came back */
    if (l->message->by_id && l->first.external_id && l->message->external_id &&
        strcmp(l->first.external_id, l->message->external_id) != 0) {
        l->first.outcome = OUTCOME_WRONG_OBJECT;
        l->first.detail =
            arena_printf(l->arena, "asked for %.100s, got %.100s", l->message->external_id, l->first.external_id);
    }
    return true;
}

/* ---- answers that are a list ---- */

/* An id or cursor: text or number. NULL when it is not one. */
static const char *cursor_at(struct lookup *l, const struct json *value, const char *pointer)
{
    return value ? http_id_text(l->arena, json_pointer_get(value, str_of(pointer))) : NULL;
}

static bool is_nothing(const struct json *value)
{
    return !value || value->type == JSON_NULL || (value->type == JSON_BOOL && !value->boolean) ||
           (value->type == JSON_STRING && value->text.n == 0);
}

static bool next_after_last(struct lookup *l, const struct json *body, const struct json *items)
{
    const struct json *more = json_pointer_get(body, str_of(l->part->next_more));
    if (!more || more->type != JSON_BOOL) {
        cannot_tell(l, arena_printf(l->arena, "%s is not true or false", l->part->next_more));
        return false;
    }
    if (!more->boolean)
        return true;
    l->cursor = items->count > 0 ? cursor_at(l, &items->items[items->count - 1], l->part->next_last_id) : NULL;
    if (!l->cursor)
        cannot_tell(l,
                    arena_printf(l->arena, "there are more pages, but the last item has no %s", l->part->next_last_id));
    return l->cursor != NULL;
}

/* Fills cursor or url when there is another page. False: cannot tell. */
static bool find_next(struct lookup *l, const struct json *body, const struct json *items)
{
    if (l->part->next_more)
        return next_after_last(l, body, items);
    const char *pointer = l->part->next_cursor ? l->part->next_cursor : l->part->next_url;
    if (!pointer || is_nothing(json_pointer_get(body, str_of(pointer))))
        return true;
    const char *text = cursor_at(l, body, pointer);
    if (!text) {
        cannot_tell(l, arena_printf(l->arena, "%s is no text or number", pointer));
        return false;
    }
    if (l->part->next_cursor)
        l->cursor = text;
    else
        l->url = text;
    return true;
}

static bool judge_items(struct lookup *l, const struct json *body)
{
    const struct json *items = json_pointer_get(body, str_of(l->part->items)), *got = NULL;
    if (!items || items->type != JSON_ARRAY) {
        cannot_tell(l, arena_printf(l->arena, "%s is %s, expected an array", l->part->items,
                                    items ? json_type_name(items->type) : "missing"));
        return false;
    }
    for (uint32_t i = 0; i < items->count; i++) {
        const struct json *item = &items->items[i];
        if (item->type != JSON_OBJECT) {
            cannot_tell(l, arena_printf(l->arena, "%s/%u is %s, expected an object", l->part->items, i,
                                        json_type_name(item->type)));
            return false;
        }
        if (!http_mismatch(l->message->match, l->message->match_count, item, &got) && !count_match(l, item))
            return false;
    }
    return find_next(l, body, items);
}

/* ---- the whole ---- */

static void turn_page(struct lookup *l)
{
    if ((l->cursor && l->last_cursor && strcmp(l->cursor, l->last_cursor) == 0) ||
        (l->url && l->last_url && strcmp(l->url, l->last_url) == 0)) {
        cannot_tell(l, "the next page is the same page again");
    } else if (l->page >= l->part->pages_max) {
        cannot_tell(l, arena_printf(l->arena, "no end after %lld pages", (long long)l->page));
    } else {
        l->answer->outcome = OUTCOME_MORE;
        progress_write(l);
    }
}

static void conclude(struct lookup *l)
{
    struct adapter_answer *answer = l->answer;
    answer->matches = l->matches;
    answer->external_id = l->first.external_id;
    if (l->matches > 1) { /* more pages could only add to it */
        answer->outcome = OUTCOME_SEVERAL;
        answer->detail = arena_printf(l->arena, "%u objects at the provider carry our reference", l->matches);
        return;
    }
    if (l->cursor || l->url) {
        answer->external_id = NULL;
        turn_page(l);
        return;
    }
    answer->outcome = l->matches == 0 ? OUTCOME_ABSENT : l->first.outcome;
    answer->detail = l->first.detail;
    answer->result = l->first.result;
}

static bool is_absent(struct lookup *l, const struct http_reply *reply, const struct json *body, struct err *broken)
{
    if (l->part->items && !l->message->by_id && !l->part->absent_stated)
        return false;
    return http_statuses_match(&l->part->absent_status, reply->status, http_error_code(l->tool->provider, body), body,
                               broken) != NULL;
}

void http_judge_lookup(const struct http_tool *tool, const struct http_message *message, const struct http_reply *reply,
                       struct arena *arena, struct adapter_answer *answer)
{
    struct lookup l = {.tool = tool, .part = tool->lookup, .message = message, .arena = arena, .answer = answer};
    struct err err = {0}, broken = {0};
    if (!progress_read(&l)) {
        cannot_tell(&l, "the progress is not from this look-up");
        return;
    }
    if (reply->end != HTTP_END_COMPLETE || reply->status == 0) {
        cannot_tell(&l, reply->detail ? reply->detail : "no answer");
        return;
    }
    struct json *body = http_parse_answer(tool->provider, arena, reply->body, &err);
    if (is_absent(&l, reply, body, &broken)) {
        /* also for a later page: a list that ends in "not there" is no list that was read to its end */
        if (l.page > 1)
            cannot_tell(&l, "a later page is gone");
        else
            answer->outcome = OUTCOME_ABSENT;
        return;
    }
    if (reply->status < 200 || reply->status > 299 || reply->status == 202 || reply->status == 206)
        cannot_tell(&l, arena_printf(arena, "the provider answered %d", reply->status));
    else if (!body)
        cannot_tell(&l, arena_printf(arena, "the answer is not JSON: %s", err.text));
    else if (broken.code != ERR_NONE)
        cannot_tell(&l, arena_printf(arena, "absent_status: %s", broken.text));
    else if (l.part->items && !message->by_id ? judge_items(&l, body) : judge_object(&l, body))
        conclude(&l);
}
