#include "contract/world.h"

#include "base/mem.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int64_t world_now(struct env *env)
{
    return ((struct world *)env)->now_ms;
}

static void world_random(struct env *env, void *out, size_t n)
{
    struct world *world = (struct world *)env;
    unsigned char *p = out;
    while (n-- > 0) {
        world->random = world->random * 6364136223846793005u + 1442695040888963407u;
        *p++ = (unsigned char)(world->random >> 56);
    }
}

void world_init(struct world *world)
{
    *world = (struct world){.env = {world_now, world_random}, .now_ms = WORLD_START_MS, .random = 1};
    ulid_source_init(&world->ids, &world->env);
    arena_init(&world->arena);
}

static void remove_folder(const char *folder)
{
    char file[512];
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        snprintf(file, sizeof file, "%s/%s", folder, entry->d_name);
        if (entry->d_name[0] != '.' || strlen(entry->d_name) > 2)
            unlink(file);
    }
    if (dir)
        closedir(dir);
    rmdir(folder);
}

void world_release(struct world *world)
{
    world_close(world);
    arena_release(&world->arena);
    if (world->folder[0])
        remove_folder(world->folder);
}

void world_folder(struct world *world)
{
    const char *base = getenv("TMPDIR");
    snprintf(world->folder, sizeof world->folder, "%s/onced-ledger-XXXXXX", base ? base : "/tmp");
    assert_non_null(mkdtemp(world->folder));
    snprintf(world->path, sizeof world->path, "%s/onced.db", world->folder);
}

void world_open(struct world *world)
{
    struct err err = {0};
    struct ledger_sqlite_options options = {.path = world->path};
    if (ledger_sqlite_open(&options, &world->env, &world->ledger, &err))
        fail_msg("%s", err.text);
}

void world_close(struct world *world)
{
    ledger_close(world->ledger);
    world->ledger = NULL;
}

void set_key(struct operation *op)
{
    op->key_hash = identity_key_hash(op->tenant, op->tool, op->key, op->repeat_of);
    op->base_hash = identity_key_hash(op->tenant, op->tool, op->key, NULL);
}

void set_arguments(struct world *world, struct operation *op, int number)
{
    op->arguments = str_of(arena_printf(&world->arena, "{\"n\":%d}", number));
    op->fingerprint = digest_sha256(op->arguments);
}

struct operation *make_operation(struct world *world, const char *tool, const char *key, int number)
{
    struct operation *op = arena_zero(&world->arena, sizeof *op);
    char ulid[ULID_CHARS + 1];
    ulid_next(&world->ids, ulid);
    snprintf(op->id, sizeof op->id, "op_%s", ulid);
    op->tenant = "acme";
    op->tool = tool;
    op->principal = "agent";
    op->key = key;
    op->key_source = KEY_SOURCE_CALLER;
    op->key_version = 1;
    op->canonical_version = 1;
    op->policy_version = "p1";
    op->provider_key = op->id;
    op->state = STATE_PENDING_DISPATCH;
    op->rev = 1;
    op->created_ms = op->updated_ms = world->now_ms;
    set_key(op);
    set_arguments(world, op, number);
    return op;
}

struct ledger_request *make_request(struct world *world, enum ledger_command command)
{
    struct ledger_request *request = arena_zero(&world->arena, sizeof *request);
    request->command = command;
    request->arena = &world->arena;
    return request;
}

struct ledger_request *make_admit(struct world *world, struct operation *op)
{
    struct ledger_request *request = make_request(world, LEDGER_ADMIT);
    request->admit = (struct ledger_admit){
        .admission = {.op = op},
        .event = {.at_ms = op->created_ms,
                  .cause = CAUSE_ADMITTED,
                  .from = op->state,
                  .to = op->state,
                  .reason = op->reason,
                  .actor = op->principal},
    };
    return request;
}

struct ledger_request *make_repeat(struct world *world, const char *tool, int number, const char *run)
{
    struct operation *op = make_operation(world, tool, NULL, number);
    op->key = arena_copy_text(&world->arena, op->id);
    op->key_source = KEY_SOURCE_REPEAT;
    op->run = run;
    set_key(op);
    struct ledger_request *request = make_admit(world, op);
    request->admit.admission.repeat_window_ms = 1000;
    return request;
}

struct ledger_request *make_transition(struct world *world, struct operation *op, enum state to)
{
    struct ledger_request *request = make_request(world, LEDGER_TRANSITION);
    struct event event = {.at_ms = world->now_ms, .cause = CAUSE_ANSWER, .from = op->state, .to = to, .actor = "onced"};
    op->rev++;
    if (op->state != STATE_UNKNOWN_OUTCOME || to != STATE_DISPATCHED) /* sent again: still not disproved */
        op->unknown_since_ms = to == STATE_UNKNOWN_OUTCOME ? world->now_ms : 0;
    op->state = to;
    op->updated_ms = world->now_ms;
    op->may_have_applied = to == STATE_DISPATCHED || to == STATE_UNKNOWN_OUTCOME || to == STATE_COMPLETED_SUCCESS;
    op->completed_ms = state_terminal(to) ? world->now_ms : 0;
    request->transition = (struct ledger_transition){.op = op, .events = {event}, .event_count = 1};
    return request;
}

enum err_code call(struct world *world, struct ledger_request *request)
{
    return ledger_call(world->ledger, request);
}

static void must(struct world *world, struct ledger_request *request)
{
    if (call(world, request))
        fail_msg("ledger command %d: %s", (int)request->command, request->err.text);
}

struct admission_result admit(struct world *world, struct operation *op)
{
    struct ledger_request *request = make_admit(world, op);
    must(world, request);
    return request->admit.result;
}

void move(struct world *world, struct operation *op, enum state to)
{
    must(world, make_transition(world, op, to));
}

struct operation *get(struct world *world, const char *id)
{
    struct ledger_request *request = make_request(world, LEDGER_GET);
    request->get.operation = id;
    enum err_code code = call(world, request);
    assert_true(code == ERR_NONE || code == ERR_NOT_FOUND);
    return request->get.op;
}

struct ledger_claim *claim(struct world *world, const char *owner, int64_t lease_ms, size_t limit)
{
    struct ledger_request *request = make_request(world, LEDGER_CLAIM_DUE);
    request->claim =
        (struct ledger_claim){.owner = owner, .now_ms = world->now_ms, .lease_ms = lease_ms, .limit = limit};
    must(world, request);
    return &request->claim;
}

struct ledger_list *list(struct world *world, struct ledger_list wanted)
{
    struct ledger_request *request = make_request(world, LEDGER_LIST);
    request->list = wanted;
    must(world, request);
    return &request->list;
}

void mark(struct world *world, struct ledger_mark wanted)
{
    struct ledger_request *request = make_request(world, LEDGER_MARK);
    request->mark = wanted;
    must(world, request);
}

enum err_code expire(struct world *world, const char *id, int64_t rev)
{
    struct ledger_request *request = make_request(world, LEDGER_EXPIRE);
    request->expire = (struct ledger_expire){.operation = id, .rev = rev, .now_ms = world->now_ms};
    return call(world, request);
}

static void assert_text(const char *a, const char *b)
{
    if (!text_equal(a, b))
        fail_msg("\"%s\" is not \"%s\"", a ? a : "(null)", b ? b : "(null)");
}

static void assert_str(struct str a, struct str b)
{
    assert_int_equal(a.p != NULL, b.p != NULL);
    assert_true(str_equal(a, b));
}

void assert_same_operation(const struct operation *a, const struct operation *b)
{
    assert_text(a->id, b->id);
    assert_text(a->tenant, b->tenant), assert_text(a->tool, b->tool), assert_text(a->principal, b->principal);
    assert_text(a->key, b->key), assert_text(a->policy_version, b->policy_version);
    assert_text(a->workflow, b->workflow), assert_text(a->run, b->run), assert_text(a->step, b->step);
    assert_text(a->session, b->session), assert_text(a->call, b->call), assert_text(a->trace, b->trace);
    assert_text(a->repeat_of, b->repeat_of), assert_text(a->distinct_from, b->distinct_from);
    assert_text(a->previous, b->previous), assert_text(a->provider_key, b->provider_key);
    assert_text(a->owner, b->owner), assert_text(a->external_id, b->external_id);
    assert_text(a->compensates, b->compensates), assert_text(a->playbook, b->playbook),
        assert_text(a->escalation, b->escalation);
    assert_text(a->compensation, b->compensation), assert_text(a->parent, b->parent);
    assert_str(a->steps, b->steps);
    assert_memory_equal(&a->key_hash, &b->key_hash, DIGEST_BYTES);
    assert_memory_equal(&a->base_hash, &b->base_hash, DIGEST_BYTES);
    assert_memory_equal(&a->fingerprint, &b->fingerprint, DIGEST_BYTES);
    assert_str(a->arguments, b->arguments), assert_str(a->result, b->result), assert_str(a->error, b->error);
#define SAME(field) assert_int_equal(a->field, b->field)
    SAME(key_source), SAME(key_version), SAME(canonical_version), SAME(created_ms), SAME(not_before_ms);
    SAME(state), SAME(reason), SAME(may_have_applied), SAME(rev), SAME(lease_until_ms), SAME(wake_at_ms);
    SAME(attempts), SAME(lookups), SAME(tries), SAME(first_sent_ms), SAME(last_sent_ms), SAME(unknown_since_ms);
    SAME(updated_ms), SAME(completed_ms), SAME(retries), SAME(absent_count), SAME(watch_next), SAME(retain_until_ms);
    SAME(http_status), SAME(result_bytes), SAME(result_dropped), SAME(duplicate_seen), SAME(delivered), SAME(orphaned);
    assert_true(str_equal(a->approval, b->approval) && !a->approval.p == !b->approval.p), SAME(ready_ms);
#undef SAME
}
