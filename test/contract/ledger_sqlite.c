/* What the SQLite ledger must do beyond the contract: files, locks, damage, full disks, crashes, backups. */
#include "contract/world.h"

#include "ledger/copy.h"
#include "ledger/verify.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE_BYTES 4096

static enum err_code try_open(struct world *world, struct ledger_sqlite_options options, struct err *err)
{
    *err = (struct err){0};
    options.path = world->path;
    return ledger_sqlite_open(&options, &world->env, &world->ledger, err);
}

static void assert_has(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("\"%s\" does not say \"%s\"", text, part);
}

/* Statements on the file behind the ledger's back. */
static void sql(const char *path, const char *text)
{
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    char *message = NULL;
    if (sqlite3_exec(db, text, NULL, NULL, &message) != SQLITE_OK)
        fail_msg("%s: %s", text, message);
    sqlite3_close(db);
}

static void fill(struct world *world, int from, int to, size_t argument_bytes)
{
    for (int i = from; i < to; i++) {
        struct operation *op = make_operation(world, "refund", arena_printf(&world->arena, "k%d", i), i);
        char *bytes = arena_zero(&world->arena, argument_bytes + 1);
        memset(bytes, 'x', argument_bytes);
        if (argument_bytes)
            op->arguments = (struct str){bytes, argument_bytes};
        assert_int_equal(admit(world, op).verdict, VERDICT_NEW);
    }
}

static int64_t file_bytes(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? st.st_size : -1;
}

/* ---- files ---- */

static void reopening_keeps_everything(void **state)
{
    struct world *world = *state;
    unsigned char secret[LEDGER_SECRET_BYTES];
    memcpy(secret, world->ledger->secret, sizeof secret);
    struct operation *op = make_operation(world, "refund", "k", 1);
    admit(world, op);
    move(world, op, STATE_DISPATCHED);
    op->reason = REASON_TIMEOUT;
    move(world, op, STATE_UNKNOWN_OUTCOME);
    world_close(world);
    world_open(world);
    assert_memory_equal(secret, world->ledger->secret, sizeof secret);
    assert_same_operation(get(world, op->id), op);
    struct ledger_request *held = make_admit(world, make_operation(world, "refund", "k2", 2));
    held->admit.admission.hold_in_doubt = true;
    assert_int_equal(call(world, held), 0);
    assert_int_equal(held->admit.result.verdict, VERDICT_HELD);
    struct ledger_request *stats = make_request(world, LEDGER_STATS);
    assert_int_equal(call(world, stats), 0);
    assert_int_equal(stats->stats.by_state[STATE_UNKNOWN_OUTCOME], 1);
    assert_true(stats->stats.file_bytes > 0);
    move(world, op, STATE_COMPLETED_SUCCESS);
    struct ledger_request *events = make_request(world, LEDGER_EVENTS);
    events->events.operation = op->id;
    assert_int_equal(call(world, events), 0);
    assert_int_equal(events->events.count, 4);
}

static void files_are_private(void **state)
{
    struct world *world = *state;
    fill(world, 0, 1, 0);
    static const char *const ends[] = {"", "-wal", "-shm", ".lock"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        struct stat st;
        assert_int_equal(stat(arena_printf(&world->arena, "%s%s", world->path, ends[i]), &st), 0);
        assert_int_equal(st.st_mode & 0777, 0600);
    }
}

static void people_can_read_it(void **state)
{
    struct world *world = *state;
    struct operation *op = make_operation(world, "refund", "k", 1);
    admit(world, op);
    move(world, op, STATE_REJECTED);
    sqlite3 *db;
    sqlite3_stmt *row;
    assert_int_equal(sqlite3_open(world->path, &db), SQLITE_OK);
    const char *text =
        "SELECT o.state, o.created, group_concat(e.cause || ':' || e.to_state, ' ') FROM operations_view o "
        "JOIN events_view e ON e.operation = o.id LEFT JOIN attempts_view a ON a.operation = o.id";
    assert_int_equal(sqlite3_prepare_v2(db, text, -1, &row, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(row), SQLITE_ROW);
    assert_string_equal(sqlite3_column_text(row, 0), "rejected");
    assert_string_equal(sqlite3_column_text(row, 1), "2026-11-29T16:00:00.000Z");
    assert_string_equal(sqlite3_column_text(row, 2), "admitted:pending_dispatch answer:rejected");
    sqlite3_finalize(row);
    sqlite3_close(db);
}

static void a_second_owner_is_refused(void **state)
{
    struct world *world = *state;
    struct ledger *first = world->ledger;
    struct err err;
    assert_int_equal(try_open(world, (struct ledger_sqlite_options){0}, &err), ERR_UNAVAILABLE);
    assert_has(err.text, arena_printf(&world->arena, "in use by pid %d", (int)getpid()));
    world->ledger = first;
    world_close(world);
    world_open(world); /* closing lets go */
}

static int schema_version(const char *path)
{
    sqlite3 *db;
    sqlite3_stmt *row;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, "PRAGMA user_version", -1, &row, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(row), SQLITE_ROW);
    int version = sqlite3_column_int(row, 0);
    sqlite3_finalize(row);
    sqlite3_close(db);
    return version;
}

static void a_newer_schema_is_refused(void **state)
{
    struct world *world = *state;
    struct err err;
    world_close(world);
    int version = schema_version(world->path);
    sql(world->path, "PRAGMA user_version = 99");
    assert_int_equal(try_open(world, (struct ledger_sqlite_options){0}, &err), ERR_INVALID);
    assert_has(err.text, "schema version 99");
    sql(world->path, arena_printf(&world->arena, "PRAGMA user_version = %d", version));
    world_open(world);
}

static void write_file(const char *path, const void *bytes, size_t n, off_t at)
{
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, n, at), (ssize_t)n);
    close(fd);
}

static void other_files_are_refused(void **state)
{
    struct world *world = *state;
    struct err err;
    world_close(world);
    unlink(world->path);
    char garbage[9000];
    memset(garbage, 'g', sizeof garbage);
    for (size_t n = 1; n < sizeof garbage; n += 2990) {
        unlink(world->path);
        write_file(world->path, garbage, n, 0);
        assert_int_equal(try_open(world, (struct ledger_sqlite_options){0}, &err), ERR_CORRUPT);
        assert_has(err.text, "not a onced ledger");
        assert_int_equal(file_bytes(world->path), n); /* untouched */
    }
    unlink(world->path);
    sql(world->path, "CREATE TABLE mine (a)");
    assert_int_equal(try_open(world, (struct ledger_sqlite_options){0}, &err), ERR_INVALID);
    assert_has(err.text, "another program");
    assert_int_equal(try_open(world, (struct ledger_sqlite_options){.read_only = true}, &err), ERR_INVALID);
    unlink(world->path);
    assert_int_equal(try_open(world, (struct ledger_sqlite_options){.read_only = true}, &err), ERR_NOT_FOUND);
    world_open(world); /* a fresh one */
}

/* ---- damage ---- */

static void damage_is_found_at_the_start(void **state)
{
    struct world *world = *state;
    struct err err;
    fill(world, 0, 200, 500);
    world_close(world);
    int64_t bytes = file_bytes(world->path);
    assert_int_equal(truncate(world->path, bytes / PAGE_BYTES / 2 * PAGE_BYTES), 0);
    assert_int_equal(try_open(world, (struct ledger_sqlite_options){0}, &err), ERR_CORRUPT);
    assert_has(err.text, "damaged");
    world->ledger = NULL;
}

static void a_damaged_page_is_found_at_the_start(void **state)
{
    struct world *world = *state;
    struct err err;
    fill(world, 0, 200, 500);
    world_close(world);
    char bytes[PAGE_BYTES];
    memset(bytes, 0x5a, sizeof bytes);
    write_file(world->path, bytes, sizeof bytes, file_bytes(world->path) / PAGE_BYTES / 2 * PAGE_BYTES);
    assert_int_equal(try_open(world, (struct ledger_sqlite_options){0}, &err), ERR_CORRUPT);
    assert_has(err.text, "restore the newest backup");
    /* onced show can still look at what is left */
    assert_int_equal(try_open(world, (struct ledger_sqlite_options){.read_only = true}, &err), 0);
}

/* A file that is too large to be checked first: used at once, found out in the background. */
static void damage_in_large_files_is_found_later(void **state)
{
    struct world *world = *state;
    fill(world, 0, 600, 30000);
    world_close(world);
    assert_true(file_bytes(world->path) > 16 << 20);
    char bytes[PAGE_BYTES];
    memset(bytes, 0x5a, sizeof bytes);
    sqlite3 *db;
    sqlite3_stmt *row;
    assert_int_equal(sqlite3_open(world->path, &db), SQLITE_OK);
    const char *text = "SELECT rootpage FROM sqlite_schema WHERE name = 'operations_run'";
    assert_int_equal(sqlite3_prepare_v2(db, text, -1, &row, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(row), SQLITE_ROW);
    off_t page = sqlite3_column_int64(row, 0);
    sqlite3_finalize(row);
    sqlite3_close(db);
    write_file(world->path, bytes, sizeof bytes, (page - 1) * PAGE_BYTES); /* an index that nothing below uses */
    world_open(world);
    enum err_code code = ERR_NONE;
    for (int i = 0; i < 1000 && code == ERR_NONE; i++) {
        struct timespec while_it_looks = {.tv_nsec = 10000000};
        nanosleep(&while_it_looks, NULL);
        code =
            call(world, make_admit(world, make_operation(world, "refund", arena_printf(&world->arena, "n%d", i), 1)));
    }
    assert_int_equal(code, ERR_CORRUPT);
    assert_int_equal(list(world, (struct ledger_list){.limit = 1})->count, 1); /* reading goes on */
}

/* ---- what can not be written ---- */

/* Runs f as nobody in a child, since the super-user may write anywhere. f returns 0 when all is well. */
static void as_nobody(struct world *world, int (*f)(struct world *world))
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(setresuid(65534, 65534, 65534) == 0 ? f(world) : 99);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static int opens_for_reading_only(struct world *world)
{
    struct err err;
    if (try_open(world, (struct ledger_sqlite_options){0}, &err) != ERR_IO)
        return 1;
    if (!strstr(err.text, "Permission denied"))
        return 2;
    if (try_open(world, (struct ledger_sqlite_options){.shared = true}, &err) != ERR_IO ||
        !strstr(err.text, "read-only"))
        return 3;
    if (try_open(world, (struct ledger_sqlite_options){.read_only = true}, &err))
        return 4;
    if (call(world, make_admit(world, make_operation(world, "refund", "new", 1))) != ERR_DENIED)
        return 5;
    struct ledger_request *request = make_admit(world, make_operation(world, "refund", "k0", 0));
    if (call(world, request) != 0 || request->admit.result.verdict != VERDICT_JOIN)
        return 6;
    struct ledger_request *all = make_request(world, LEDGER_LIST);
    all->list.limit = 10;
    return call(world, all) == 0 && all->list.count == 3 ? 0 : 7;
}

static void read_only_folders(void **state)
{
    struct world *world = *state;
    if (geteuid() != 0)
        skip(); /* needs a second user */
    fill(world, 0, 3, 0);
    world_close(world);
    unlink(arena_printf(&world->arena, "%s.lock", world->path));
    chmod(world->folder, 0555);
    chmod(world->path, 0444);
    as_nobody(world, opens_for_reading_only);
    chmod(world->folder, 0700);
    chmod(world->path, 0600);
}

static void fill_disk(const char *path)
{
    char block[4096] = {0};
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    while (write(fd, block, sizeof block) > 0)
        ;
    close(fd);
}

static enum err_code admit_key(struct world *world, const char *key, struct ledger_request **out)
{
    *out = make_admit(world, make_operation(world, "refund", key, 1));
    return call(world, *out);
}

/* Full disk: a clear refusal, nothing acknowledged is lost, reads and replays go on, and so does all when space
 * returns. */
static void full_disks(void **state)
{
    struct world *world = *state;
    world_close(world);
    if (mount("none", world->folder, "tmpfs", 0, "size=2m") != 0)
        skip(); /* needs the right to mount */
    world_open(world);
    char *ballast = arena_printf(&world->arena, "%s/ballast", world->folder);
    const char *ids[20000];
    struct ledger_request *request = NULL;
    int kept = 0;
    assert_int_equal(admit_key(world, "k0", &request), 0);
    ids[kept++] = request->admit.admission.op->id;
    for (int round = 0; round < 3; round++) {
        fill_disk(ballast);
        while (admit_key(world, arena_printf(&world->arena, "k%d", kept), &request) == 0)
            ids[kept++] = request->admit.admission.op->id;
        assert_int_equal(request->code, ERR_UNAVAILABLE);
        assert_has(request->err.text, "is full");
        assert_has(request->err.text, "nothing was sent");
        for (int i = 0; i < kept; i++)
            assert_non_null(get(world, ids[i]));
        assert_int_equal(admit_key(world, "k0", &request), 0);
        assert_int_equal(request->admit.result.verdict, VERDICT_JOIN);
        assert_int_equal(list(world, (struct ledger_list){.limit = 1})->count, 1);
        if (round == 1) { /* and after a restart while it is full */
            world_close(world);
            unlink(ballast);
            world_open(world);
        }
        unlink(ballast);
        for (int i = 0; i < 20; i++) {
            assert_int_equal(admit_key(world, arena_printf(&world->arena, "k%d", kept), &request), 0);
            ids[kept++] = request->admit.admission.op->id;
        }
        for (int i = 0; i < kept; i++)
            assert_non_null(get(world, ids[i]));
    }
    world_close(world);
    assert_int_equal(umount(world->folder), 0);
}

static void another_writer_only_delays(void **state)
{
    struct world *world = *state;
    struct ledger_request *request;
    sqlite3 *db;
    assert_int_equal(sqlite3_open(world->path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(admit_key(world, "k", &request), ERR_UNAVAILABLE); /* after STORE_BUSY_MS */
    assert_has(request->err.text, "locked");
    assert_int_equal(sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(admit_key(world, "k", &request), 0);
    assert_int_equal(request->admit.result.verdict, VERDICT_NEW);
    sqlite3_close(db);
}

/* ---- crashes ---- */

#define CHILD_CALLS 16

struct acknowledged {
    char id[OPERATION_ID_SIZE];
    bool ended;
};

struct child_call {
    struct ledger_request request;
    struct arena arena;
    struct operation *op;
    int pipe;
    int *open;
};

static void tell_parent(struct ledger_request *request)
{
    struct child_call *child = request->user;
    struct acknowledged line = {.ended = request->command == LEDGER_TRANSITION};
    memcpy(line.id, child->op->id, sizeof line.id);
    if (request->code || write(child->pipe, &line, sizeof line) != (ssize_t)sizeof line)
        _exit(1);
    --*child->open;
}

static void child_submit(struct world *world, struct child_call *child, struct ledger_request *made)
{
    child->request = *made;
    child->request.arena = &child->arena;
    child->request.user = child;
    child->request.done = tell_parent;
    ++*child->open;
    ledger_submit(world->ledger, &child->request);
}

static void child_wait(struct world *world, const int *open)
{
    while (*open > 0) {
        ledger_wait(world->ledger, 1000);
        ledger_poll(world->ledger);
    }
}

/* Writes for ever, some calls at a time; every acknowledged command goes to the pipe. */
static void child_main(struct world *world, int pipe)
{
    int open = 0;
    struct child_call *calls = calloc(CHILD_CALLS, sizeof *calls);
    world_open(world);
    for (unsigned long number = 0;;) {
        for (int i = 0; i < CHILD_CALLS; i++) {
            const char *key = arena_printf(&world->arena, "%lld-%lu", (long long)world->now_ms, number++);
            calls[i].pipe = pipe;
            calls[i].open = &open;
            calls[i].op = make_operation(world, "refund", key, 1);
            child_submit(world, &calls[i], make_admit(world, calls[i].op));
        }
        child_wait(world, &open);
        for (int i = 0; i < CHILD_CALLS; i++)
            child_submit(world, &calls[i], make_transition(world, calls[i].op, STATE_COMPLETED_SUCCESS));
        child_wait(world, &open);
    }
}

static void kill_nine_loses_nothing_acknowledged(void **state)
{
    struct world *world = *state;
    world_close(world);
    struct acknowledged *all = calloc(1 << 20, sizeof *all);
    size_t count = 0;
    for (int round = 0; round < 20; round++) {
        int ends[2];
        assert_int_equal(pipe(ends), 0);
        world->now_ms += 1000;
        pid_t pid = fork();
        if (pid == 0)
            child_main(world, ends[1]);
        close(ends[1]);
        size_t enough = count + 50 + (size_t)round * 37; /* so the child is surely at work */
        while (count < enough && read(ends[0], &all[count], sizeof *all) == (ssize_t)sizeof *all)
            count++;
        struct timespec a_moment = {.tv_nsec = (round * 7919L) % 5000 * 1000};
        nanosleep(&a_moment, NULL);
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        while (read(ends[0], &all[count], sizeof *all) == (ssize_t)sizeof *all)
            count++;
        close(ends[0]);
        assert_true(count >= enough);
        world_open(world); /* the lock fell with the process */
        for (size_t i = 0; i < count; i++) {
            struct operation *op = get(world, all[i].id);
            assert_non_null(op);
            assert_true(!all[i].ended || op->state == STATE_COMPLETED_SUCCESS);
        }
        world_close(world);
        arena_reset(&world->arena);
    }
    free(all);
}

/* ---- other processes ---- */

struct writer {
    const char *path;
    int failures;
};

static void *add_tokens(void *arg)
{
    struct writer *writer = arg;
    struct err err = {0};
    struct ledger *ledger;
    struct ledger_sqlite_options options = {.path = writer->path, .shared = true};
    for (int i = 0; i < 20; i++) {
        struct arena arena;
        arena_init(&arena);
        if (ledger_sqlite_open(&options, env_system(), &ledger, &err)) {
            writer->failures++;
            continue;
        }
        char id[16];
        snprintf(id, sizeof id, "tok_%d", i);
        struct ledger_request request = {.command = LEDGER_TOKEN_ADD, .arena = &arena};
        request.token.token =
            (struct token){.id = id, .secret_hash = digest_sha256(str_of(id)), .tenant = "acme", .principal = "ann"};
        writer->failures += ledger_call(ledger, &request) != 0;
        ledger_close(ledger);
        arena_release(&arena);
    }
    return NULL;
}

static void a_second_process_adds_tokens(void **state)
{
    struct world *world = *state;
    struct writer writer = {.path = world->path};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, add_tokens, &writer), 0);
    fill(world, 0, 500, 0);
    pthread_join(thread, NULL);
    assert_int_equal(writer.failures, 0);
    struct ledger_request *all = make_request(world, LEDGER_TOKEN_LIST);
    assert_int_equal(call(world, all), 0);
    assert_int_equal(all->token_list.count, 20);
    assert_int_equal(list(world, (struct ledger_list){.limit = 500})->count, 500);
}

struct backup {
    const char *path, *target;
    struct err err;
};

static void *make_backup(void *arg)
{
    struct backup *backup = arg;
    ledger_sqlite_backup(backup->path, backup->target, &backup->err);
    return NULL;
}

static void backups_while_writing(void **state)
{
    struct world *world = *state;
    fill(world, 0, 300, 2000);
    struct backup backup = {.path = world->path, .target = arena_printf(&world->arena, "%s/copy.db", world->folder)};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, make_backup, &backup), 0);
    fill(world, 300, 600, 100);
    pthread_join(thread, NULL);
    if (backup.err.code)
        fail_msg("%s", backup.err.text);
    struct stat st;
    assert_int_equal(stat(backup.target, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(st.st_nlink, 1);
    struct err err = {0};
    assert_int_equal(ledger_sqlite_backup(world->path, backup.target, &err), ERR_CONFLICT);
    assert_has(err.text, "never replaces");
    err_clear(&err);
    const char *nowhere = arena_printf(&world->arena, "%s/none/copy.db", world->folder);
    assert_int_equal(ledger_sqlite_backup(world->path, nowhere, &err), ERR_IO);
    err_clear(&err);
    assert_int_equal(ledger_sqlite_backup(nowhere, arena_printf(&world->arena, "%s/x", world->folder), &err),
                     ERR_NOT_FOUND);
    /* The copy is a ledger of its own. */
    unsigned char secret[LEDGER_SECRET_BYTES];
    memcpy(secret, world->ledger->secret, sizeof secret);
    world_close(world);
    snprintf(world->path, sizeof world->path, "%s", backup.target);
    world_open(world);
    assert_memory_equal(secret, world->ledger->secret, sizeof secret);
    struct ledger_list wanted = {.limit = LEDGER_LIST_MAX};
    size_t count = list(world, wanted)->count;
    assert_true(count >= 300);
}

/* ---- places of rows ---- */

/* Two ids of one millisecond with the same low bits: the second row lies beside the first, both are found. */
static void ids_that_meet_are_both_found(void **state)
{
    struct world *world = *state;
    static const char *const ids[] = {"op_01KB9A6QH4000000000000000Z", "op_01KB9A6QH400000000000ZZ00Z",
                                      "op_01KB9A6QH4ZZZZZZZZZZZZZ00Z", "op_01KB9A6QH400000000000000010"};
    struct operation *ops[4];
    for (int i = 0; i < 4; i++) {
        ops[i] = make_operation(world, "refund", arena_printf(&world->arena, "k%d", i), i);
        memcpy(ops[i]->id, ids[i], strlen(ids[i]) < OPERATION_ID_SIZE ? strlen(ids[i]) + 1 : 0);
        assert_int_equal(admit(world, ops[i]).verdict, VERDICT_NEW);
    }
    for (int i = 0; i < 4; i++) {
        assert_same_operation(get(world, ops[i]->id), ops[i]);
        move(world, ops[i], STATE_REJECTED);
    }
    struct ledger_list wanted = {.limit = 1};
    int seen = 0;
    do {
        struct ledger_list *page = list(world, wanted);
        seen += (int)page->count;
        wanted.before = page->next;
    } while (wanted.before);
    assert_int_equal(seen, 4);
}

/* ---- work on all rows (bulk.h) ---- */

static struct bulk *bulk_of(struct world *world, const char *path, enum bulk_use use)
{
    struct bulk *bulk = NULL;
    enum bulk_trouble trouble;
    struct err err = {0};
    if (bulk_open(path, use, &world->env, &bulk, &trouble, &err))
        fail_msg("%s", err.text);
    return bulk;
}

/* 700 operations in all kinds of states, some dropped. Closes the ledger. */
static void fill_and_close(struct world *world)
{
    fill(world, 0, 700, 10);
    struct ledger_list wanted = {.limit = 40};
    struct ledger_list *page = list(world, wanted);
    for (size_t i = 0; i < page->count; i++) {
        move(world, page->ops[i], i % 2 ? STATE_REJECTED : STATE_DISPATCHED);
        if (i % 4 == 1)
            assert_int_equal(expire(world, page->ops[i]->id, page->ops[i]->rev), 0);
        else if (i % 4 == 0)
            move(world, page->ops[i], STATE_UNKNOWN_OUTCOME);
    }
    world_close(world);
}

struct stopping {
    int batches; /* after so many the process ends */
};

static void stop_there(void *user, enum table_id table, int64_t rows, bool comparing)
{
    struct stopping *stopping = user;
    (void)table;
    (void)rows;
    (void)comparing;
    if (--stopping->batches == 0)
        _exit(3);
}

static enum err_code copy_to(struct world *world, const char *target, struct stopping *stopping,
                             struct copy_report *report, struct err *err)
{
    struct copy_options options = {.progress = stopping ? stop_there : NULL, .user = stopping};
    struct bulk *from = bulk_of(world, world->path, BULK_TAKE), *to = bulk_of(world, target, BULK_FILL);
    ledger_copy(from, to, &options, report, err);
    bulk_close(to);
    bulk_close(from);
    return err->code;
}

/* In a process of its own, which ends after so many batches. False: it came to the end before. */
static bool cut_short(struct world *world, const char *target, int batches)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        struct stopping stopping = {batches};
        struct copy_report report;
        struct err err = {0};
        _exit(copy_to(world, target, &stopping, &report, &err) ? 4 : 0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 4);
    return WEXITSTATUS(status) == 3;
}

static void copies_are_equal_wherever_they_were_cut(void **state)
{
    struct world *world = *state;
    fill_and_close(world);
    int batches = 1;
    for (;; batches++) {
        const char *target = arena_printf(&world->arena, "%s/copy%d.db", world->folder, batches);
        struct ledger_sqlite_options options = {.path = target};
        struct copy_report report;
        struct ledger *none = NULL;
        struct err err = {0};
        if (!cut_short(world, target, batches))
            break;
        assert_int_equal(ledger_sqlite_open(&options, &world->env, &none, &err), ERR_INVALID);
        assert_has(err.text, "being filled");
        err_clear(&err);
        if (copy_to(world, target, NULL, &report, &err))
            fail_msg("%s", err.text);
        assert_true(report.resumed && !report.differs && report.to[TABLE_OPERATIONS].rows == 690);
        assert_int_equal(report.to[TABLE_TOMBSTONES].rows, 10);
        assert_int_equal(ledger_sqlite_open(&options, &world->env, &none, &err), 0);
        ledger_close(none);
    }
    assert_true(batches > 20); /* operations come in several, and each table is compared */
}

static void a_source_that_was_changed_is_noticed(void **state)
{
    struct world *world = *state;
    struct copy_report report;
    struct err err = {0};
    fill_and_close(world);
    const char *target = arena_printf(&world->arena, "%s/copy.db", world->folder);
    assert_true(cut_short(world, target, 4));
    sql(world->path, "UPDATE operations SET delivered = 1 WHERE n = (SELECT min(n) FROM operations)");
    assert_int_equal(copy_to(world, target, NULL, &report, &err), ERR_CONFLICT);
    assert_true(report.differs);
    err_clear(&err);
    snprintf(world->path, sizeof world->path, "%s/another.db", world->folder);
    world_open(world);
    world_close(world);
    assert_int_equal(copy_to(world, target, NULL, &report, &err), ERR_CONFLICT);
    assert_has(err.text, "is being filled from");
}

static void count_finding(void *user, const struct verify_finding *finding)
{
    if (strcmp(finding->rule, "claimable") != 0) /* the world's operations wake for nobody */
        assert_string_equal(finding->rule, "repeat-hash"), (*(int *)user)++;
}

static void rows_are_verified(void **state)
{
    struct world *world = *state;
    struct verify_report report;
    struct err err = {0};
    int found = 0;
    fill(world, 0, 100, 0);
    const struct verify_listener listener = {.found = count_finding, .user = &found};
    sql(world->path, "UPDATE operations SET repeat_hash = 5 WHERE n = (SELECT min(n) FROM operations)");
    struct bulk *bulk = bulk_of(world, world->path, BULK_LOOK); /* beside the ledger that is open */
    assert_int_equal(ledger_verify(bulk, &listener, &report, &err), 0);
    bulk_close(bulk);
    assert_int_equal(found, 1);
    assert_int_equal(report.findings, 101);
    assert_int_equal(report.rows[TABLE_OPERATIONS], 100);
}

static int open_world(void **state)
{
    struct world *world = calloc(1, sizeof *world);
    world_init(world);
    world_folder(world);
    world_open(world);
    *state = world;
    return 0;
}

static int release(void **state)
{
    struct world *world = *state;
    world_close(world);
    umount2(world->folder, MNT_DETACH); /* what a test that failed left behind */
    world_release(world);
    free(*state);
    return 0;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, open_world, release)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(reopening_keeps_everything),
        TEST(files_are_private),
        TEST(people_can_read_it),
        TEST(a_second_owner_is_refused),
        TEST(a_newer_schema_is_refused),
        TEST(other_files_are_refused),
        TEST(damage_is_found_at_the_start),
        TEST(a_damaged_page_is_found_at_the_start),
        TEST(damage_in_large_files_is_found_later),
        TEST(read_only_folders),
        TEST(full_disks),
        TEST(another_writer_only_delays),
        TEST(kill_nine_loses_nothing_acknowledged),
        TEST(a_second_process_adds_tokens),
        TEST(backups_while_writing),
        TEST(ids_that_meet_are_both_found),
        TEST(copies_are_equal_wherever_they_were_cut),
        TEST(a_source_that_was_changed_is_noticed),
        TEST(rows_are_verified),
    };
    return cmocka_run_group_tests_name("SQLite ledger", tests, NULL, NULL);
}
