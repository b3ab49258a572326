/* Look-ups: GET /v1/NAME/ID and GET /v1/NAME?reference=…&limit=…&starting_after=…, newest first. */
#include "cli/fake_api.h"

#include <stdlib.h>
#include <string.h>

#define FILTERS_MAX   8
#define BROKEN_CURSOR "broken" /* of lookup_partial: the next page is an error */

struct filter {
    struct str name, value;
};

struct list {
    struct fake_request *request;
    struct filter filters[FILTERS_MAX];
    size_t filter_count;
    bool too_many;
    size_t limit;
    uint64_t below; /* objects with a smaller seq only; 0 = all */
    size_t count;
    struct str last;
    bool more;
};

static bool is_shown(const struct fake_request *request, const struct fake_object *object)
{
    return object->collection == (unsigned)request->collection && !object->deleted &&
           object->visible_at_ms <= request->fake->now_ms;
}

/* "amount", "metadata[order]" or "metadata.order" in the object */
static const struct json *filtered_value(const struct json *object, struct str name)
{
    const struct json *metadata = json_get(object, "metadata");
    if (name.n > 10 && memcmp(name.p, "metadata[", 9) == 0 && name.p[name.n - 1] == ']')
        return json_get_str(metadata, (struct str){name.p + 9, name.n - 10});
    if (name.n > 9 && memcmp(name.p, "metadata.", 9) == 0)
        return json_get_str(metadata, (struct str){name.p + 9, name.n - 9});
    return json_get_str(object, name);
}

static bool passes(const struct list *list, const struct fake_object *object)
{
    if (list->filter_count == 0)
        return true;
    struct fake *fake = list->request->fake;
    struct arena arena;
    struct buf text;
    struct json *json;
    arena_init(&arena);
    buf_init(&text, 0);
    fake_object_write(&fake->store, object, fake->now_ms, &text);
    bool fits = json_parse(&arena, buf_str(&text), &json_limits_default, &json, NULL) == ERR_NONE;
    for (size_t i = 0; i < list->filter_count && fits; i++) {
        const struct json *value = filtered_value(json, list->filters[i].name);
        fits = value && (value->type == JSON_STRING || value->type == JSON_NUMBER) &&
               str_equal(value->text, list->filters[i].value);
    }
    buf_release(&text);
    arena_release(&arena);
    return fits;
}

/* Object as the fault lets it be seen. */
static void write_object(struct fake_request *request, const struct fake_object *object, bool copy)
{
    struct fake *fake = request->fake;
    if (request->plan.fault != FAULT_LOOKUP_WRONG && !copy) {
        fake_object_write(&fake->store, object, fake->now_ms, &request->answer);
        return;
    }
    struct buf text;
    struct json *json;
    buf_init(&text, 0);
    fake_object_write(&fake->store, object, fake->now_ms, &text);
    if (json_parse(&request->arena, buf_str(&text), &json_limits_default, &json, NULL) == ERR_NONE) {
        if (copy)
            json_set(&request->arena, json, STR("id"),
                     json_string(str_of(arena_printf(&request->arena, "%.*s_copy", STR_ARG(object->id)))));
        else
            fake_api_alter_amounts(request, json, request->plan.argument);
        json_write(&request->answer, json);
    }
    buf_release(&text);
}

/* False when the page is full. */
static bool list_object(struct list *list, const struct fake_object *object)
{
    struct fake_request *request = list->request;
    if ((list->below && object->seq >= list->below) || !is_shown(request, object) || !passes(list, object))
        return true;
    if (list->count == list->limit) {
        list->more = true;
        return false;
    }
    if (list->count++)
        buf_add_char(&request->answer, ',');
    write_object(request, object, false);
    if (request->plan.fault == FAULT_LOOKUP_TWICE) {
        buf_add_char(&request->answer, ',');
        write_object(request, object, true);
    }
    list->last = object->id;
    return true;
}

static void list_objects(struct list *list, struct str reference)
{
    struct fake_store *store = &list->request->fake->store;
    if (reference.p) {
        const struct fake_count *count = fake_counts_find(&store->references, reference);
        const struct fake_object *object = count ? count->newest : NULL;
        while (object && list_object(list, object))
            object = object->reference_next;
        return;
    }
    for (uint64_t seq = store->next; seq-- > store->oldest;) {
        if (!list_object(list, store->ring[seq % store->objects_max]))
            return;
    }
}

static enum MHD_Result on_query(void *user, enum MHD_ValueKind kind, const char *name, const char *value)
{
    static const char *const own[] = {"reference", "limit",    "starting_after", "cursor",
                                      "expand",    "expand[]", "redirected"};
    (void)kind;
    struct list *list = user;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        if (strcmp(name, own[i]) == 0)
            return MHD_YES;
    }
    if (list->filter_count == FILTERS_MAX) {
        list->too_many = true;
        return MHD_NO;
    }
    list->filters[list->filter_count++] = (struct filter){str_of(name), str_of(value ? value : "")};
    return MHD_YES;
}

static bool read_limit(struct list *list)
{
    const struct fake_config *config = &list->request->fake->config;
    struct str limit = fake_request_query(list->request, "limit");
    long number = limit.p ? strtol(limit.p, NULL, 10) : config->page_size;
    if (number < 1) {
        fake_answer_error(list->request, 400, "invalid_request", "limit: expected a number from 1");
        return false;
    }
    list->limit = number < config->page_size_max ? (size_t)number : (size_t)config->page_size_max;
    if (list->request->plan.fault == FAULT_LOOKUP_PARTIAL)
        list->limit = (size_t)list->request->plan.argument;
    return true;
}

static bool read_cursor(struct list *list)
{
    struct fake_request *request = list->request;
    struct str after = fake_request_query(request, "starting_after");
    if (!after.p)
        after = fake_request_query(request, "cursor");
    if (!after.p)
        return true;
    if (str_is(after, BROKEN_CURSOR)) {
        fake_answer_error(request, 500, "server_error", "the next page cannot be read");
        return false;
    }
    struct fake_object *object = fake_store_find(&request->fake->store, (unsigned)request->collection, after);
    if (!object) {
        fake_answer_error(request, 400, "invalid_request", "no object %.*s to continue after", STR_ARG(after));
        return false;
    }
    list->below = object->seq;
    return true;
}

static void answer_list(struct fake_request *request)
{
    struct list list = {.request = request};
    MHD_get_connection_values(request->connection, MHD_GET_ARGUMENT_KIND, on_query, &list);
    if (list.too_many) {
        fake_answer_error(request, 400, "invalid_request", "more than %d filters", FILTERS_MAX);
        return;
    }
    if (!read_limit(&list) || !read_cursor(&list))
        return;
    bool partial = request->plan.fault == FAULT_LOOKUP_PARTIAL;
    buf_add_text(&request->answer, "{\"object\":\"list\",\"data\":[");
    if (request->plan.fault != FAULT_LOOKUP_EMPTY)
        list_objects(&list, fake_request_query(request, "reference"));
    buf_printf(&request->answer, "],\"has_more\":%s,\"next_cursor\":", list.more || partial ? "true" : "false");
    if (partial)
        buf_add_text(&request->answer, "\"" BROKEN_CURSOR "\"");
    else if (list.more)
        json_write_string(&request->answer, list.last);
    else
        buf_add_text(&request->answer, "null");
    buf_add_char(&request->answer, '}');
    request->status = 200;
}

static void answer_one(struct fake_request *request)
{
    const struct fake_object *object =
        fake_store_find(&request->fake->store, (unsigned)request->collection, request->id);
    bool hidden = request->plan.fault == FAULT_LOOKUP_EMPTY || request->plan.fault == FAULT_LOOKUP_PARTIAL;
    if (!object || hidden || !is_shown(request, object)) {
        fake_answer_error(request, 404, "not_found", "no such object");
        return;
    }
    request->etag = object->version;
    request->status = 200;
    write_object(request, object, false);
}

void fake_lookup_start(struct fake_request *request)
{
    struct fake *fake = request->fake;
    fake->store.totals.lookups++;
    request->reference = fake_request_query(request, "reference");
    if (request->reference.p) {
        struct fake_entry *entry = fake_request_entry(request);
        if (entry)
            fake_entry_set(entry, LOG_REFERENCE, request->reference);
    }
    unsigned nth = ++fake_counts_get(&fake->lookups, request->uri)->writes;
    if (!fake_api_choose(request, true, fake_hash(request->uri, 13), nth))
        return;
    if (request->id.p)
        answer_one(request);
    else
        answer_list(request);
    if (request->plan.fault == FAULT_SLOW)
        request->hold_ms = request->plan.argument;
    fake_api_shape(request);
}
