/* The queue to a ledger's thread: what shares a batch, and that nothing stays behind. */
#include "ledger/queue.h"
#include "support/test.h"

#include <semaphore.h>
#include <time.h>

#define REQUESTS_MAX 64

struct fixture {
    struct queue queue;
    struct ledger_request requests[REQUESTS_MAX];
    size_t batches[REQUESTS_MAX], batch_count; /* the queue's thread's, until it is stopped */
    size_t done[REQUESTS_MAX], done_count;     /* places of the requests, in order */
    int turns, news;                           /* callbacks */
};

static void on_turn(void *user)
{
    ((struct fixture *)user)->turns++;
}

static void on_news(void *user)
{
    ((struct fixture *)user)->news++;
}

static void run(void *owner, int lane, struct ledger_request *first, size_t count)
{
    struct fixture *f = owner;
    assert_int_equal(lane, 0);
    f->batches[f->batch_count++] = count;
    for (; first; first = first->next)
        first->code = ERR_NONE;
}

static void done(struct ledger_request *request)
{
    struct fixture *f = request->user;
    f->done[f->done_count++] = (size_t)(request - f->requests);
}

static void begin(struct fixture *f, bool by_turns)
{
    *f = (struct fixture){0};
    queue_init(&f->queue, 0, NULL, f);
    f->queue.turn = by_turns ? on_turn : NULL;
    f->queue.run = run;
    f->queue.owner = f;
    for (size_t i = 0; i < REQUESTS_MAX; i++)
        f->requests[i] = (struct ledger_request){.done = done, .user = f};
}

static void end(struct fixture *f)
{
    queue_stop(&f->queue);
    queue_release(&f->queue);
}

static void submit(struct fixture *f, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        queue_submit(&f->queue, &f->requests[i]);
}

static void await_done(struct fixture *f, size_t count)
{
    while (f->done_count < count) {
        queue_wait(&f->queue, 1000);
        queue_poll(&f->queue);
    }
}

static void finish(struct fixture *f, size_t count)
{
    await_done(f, count);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(f->done[i], i);
}

static void test_turns_that_bring_requests_share_a_batch(void **state)
{
    (void)state;
    struct fixture f;
    struct err err = {0};
    begin(&f, true);
    assert_int_equal(queue_start(&f.queue, &err), ERR_NONE);
    submit(&f, 0, 3);
    assert_int_equal(f.turns, 1);
    assert_int_equal(queue_turn(&f.queue), 0);
    submit(&f, 3, 5);
    assert_int_equal(queue_turn(&f.queue), 0);
    assert_int_equal(f.turns, 1);
    assert_int_equal(f.queue.queued, 0); /* what the thread was not given it can not have taken */
    assert_int_equal(queue_turn(&f.queue), -1);
    finish(&f, 5);
    assert_int_equal(queue_turn(&f.queue), -1);
    submit(&f, 5, 8);
    assert_int_equal(f.turns, 2);
    finish(&f, 8); /* who waits does not wait for turns */
    end(&f);
    assert_int_equal(f.batch_count, 2);
    assert_int_equal(f.batches[0], 5);
    assert_int_equal(f.batches[1], 3);
}

static struct ledger_request *mark(struct fixture *f, size_t i, bool orphaned)
{
    f->requests[i].command = LEDGER_MARK;
    f->requests[i].mark = (struct ledger_mark){.operation = "op", .delivered = !orphaned, .orphaned = orphaned};
    return &f->requests[i];
}

static void test_marks_of_delivery_are_put_off(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, true);
    queue_submit(&f.queue, mark(&f, 0, false));
    assert_int_equal(f.turns, 1);
    assert_int_equal(queue_turn(&f.queue), QUEUE_PUT_OFF_MS);
    queue_submit(&f.queue, mark(&f, 1, false));
    assert_int_equal(f.turns, 1);
    assert_int_equal(f.queue.queued, 0);
    assert_int_equal(queue_turn(&f.queue), -1); /* the time is over */
    assert_int_equal(f.queue.queued, 2);

    queue_submit(&f.queue, mark(&f, 2, false));
    assert_int_equal(queue_turn(&f.queue), QUEUE_PUT_OFF_MS);
    submit(&f, 3, 4); /* does not wait, and takes it along, in order */
    assert_int_equal(f.turns, 3);
    assert_int_equal(queue_turn(&f.queue), 0);
    assert_int_equal(queue_turn(&f.queue), -1);
    assert_int_equal(f.queue.queued, 4);

    queue_submit(&f.queue, mark(&f, 4, true)); /* that an operation is orphaned holds other calls: at once */
    assert_int_equal(queue_turn(&f.queue), 0);
    assert_int_equal(queue_turn(&f.queue), -1);
    assert_int_equal(f.queue.queued, 5);
    struct err err = {0};
    assert_int_equal(queue_start(&f.queue, &err), ERR_NONE);
    finish(&f, 5);
    end(&f);
}

static void test_a_long_turn_is_not_waited_for(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, true);
    submit(&f, 0, QUEUE_STAGED_MAX - 1);
    assert_int_equal(f.queue.queued, 0);
    submit(&f, QUEUE_STAGED_MAX - 1, QUEUE_STAGED_MAX + 1);
    assert_int_equal(f.queue.queued, QUEUE_STAGED_MAX);
    assert_int_equal(f.queue.staged_count, 1);
    assert_int_equal(f.turns, 2); /* for the one behind, too */
    struct err err = {0};
    assert_int_equal(queue_start(&f.queue, &err), ERR_NONE);
    finish(&f, QUEUE_STAGED_MAX + 1);
    end(&f);
}

static void test_what_is_staged_is_finished_at_the_end(void **state)
{
    (void)state;
    struct fixture f;
    struct err err = {0};
    begin(&f, true);
    assert_int_equal(queue_start(&f.queue, &err), ERR_NONE);
    submit(&f, 0, 3);
    end(&f);
    assert_int_equal(f.done_count, 3);
}

static void test_without_turns_it_goes_at_once(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, false);
    submit(&f, 0, 2);
    assert_int_equal(f.queue.queued, 2);
    assert_null(f.queue.staged.first);
    queue_release(&f.queue);
}

static void test_a_full_queue_refuses(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, true);
    f.queue.notify = on_news;
    f.queue.queued = LEDGER_QUEUE_MAX - 1;
    submit(&f, 0, 3);
    assert_int_equal(queue_turn(&f.queue), 0);
    assert_int_equal(queue_turn(&f.queue), -1);
    assert_int_equal(f.news, 1);
    queue_poll(&f.queue);
    assert_int_equal(f.done_count, 2); /* the first one had the last place */
    assert_int_equal(f.done[0], 1);
    assert_int_equal(f.done[1], 2);
    assert_int_equal(f.requests[1].code, ERR_UNAVAILABLE);
    assert_ptr_equal(f.queue.waiting.first, &f.requests[0]);
    queue_release(&f.queue);
}

/* ---- two lanes ---- */

struct lanes {
    struct fixture f; /* first: the queue's owner */
    sem_t first_may_end, second_has_run;
    enum err_code second_ends_with;
};

static size_t everything_runs_beside(void *owner, int lane, struct ledger_request *first, size_t count, bool others)
{
    (void)owner, (void)lane, (void)first, (void)others;
    return count;
}

static void run_in_lane(void *owner, int lane, struct ledger_request *first, size_t count)
{
    struct lanes *lanes = owner;
    (void)lane;
    bool is_first = first == &lanes->f.requests[0];
    if (is_first)
        sem_wait(&lanes->first_may_end);
    assert_int_equal(count, is_first ? 1 : QUEUE_BESIDE_LEAST);
    for (; first; first = first->next)
        first->code = is_first ? ERR_NONE : lanes->second_ends_with;
    if (!is_first)
        sem_post(&lanes->second_has_run);
}

/* The first batch is at work until the second one has run beside it. */
static void begin_lanes(struct lanes *lanes, enum err_code second_ends_with)
{
    struct err err = {0};
    begin(&lanes->f, false);
    lanes->f.queue.run = run_in_lane;
    lanes->f.queue.beside = everything_runs_beside;
    lanes->f.queue.lanes = 2;
    lanes->second_ends_with = second_ends_with;
    sem_init(&lanes->first_may_end, 0, 0);
    sem_init(&lanes->second_has_run, 0, 0);
    submit(&lanes->f, 0, 1);
    assert_int_equal(queue_start(&lanes->f.queue, &err), ERR_NONE);
    for (bool taken = false; !taken;) {
        pthread_mutex_lock(&lanes->f.queue.mutex);
        taken = lanes->f.queue.busy == 1;
        pthread_mutex_unlock(&lanes->f.queue.mutex);
    }
    submit(&lanes->f, 1, 1 + QUEUE_BESIDE_LEAST);
    sem_wait(&lanes->second_has_run);
}

static void end_lanes(struct lanes *lanes)
{
    sem_post(&lanes->first_may_end);
    await_done(&lanes->f, 1 + QUEUE_BESIDE_LEAST);
    end(&lanes->f);
    sem_destroy(&lanes->first_may_end);
    sem_destroy(&lanes->second_has_run);
}

static void test_batches_are_handed_over_in_their_order(void **state)
{
    (void)state;
    struct lanes lanes;
    begin_lanes(&lanes, ERR_NONE);
    queue_poll(&lanes.f.queue);
    assert_int_equal(lanes.f.done_count, 0);
    end_lanes(&lanes);
    for (size_t i = 0; i <= QUEUE_BESIDE_LEAST; i++)
        assert_int_equal(lanes.f.done[i], i);
}

/* The first one may be in doubt, which can last. */
static void test_refusals_wait_for_no_other_batch(void **state)
{
    (void)state;
    struct lanes lanes;
    begin_lanes(&lanes, ERR_UNAVAILABLE);
    for (int i = 0; i < 100 && lanes.f.done_count == 0; i++) {
        queue_wait(&lanes.f.queue, 100);
        queue_poll(&lanes.f.queue);
    }
    assert_int_equal(lanes.f.done_count, QUEUE_BESIDE_LEAST);
    end_lanes(&lanes);
    assert_int_equal(lanes.f.done[QUEUE_BESIDE_LEAST], 0);
}

static void run_pausing(void *owner, int lane, struct ledger_request *first, size_t count)
{
    struct lanes *lanes = owner;
    (void)lane, (void)count;
    if (first == &lanes->f.requests[0]) {
        queue_pause(&lanes->f.queue, 60000);
        sem_post(&lanes->second_has_run);
    }
    first->code = ERR_NONE;
}

/* Whoever waits for better times can tell what comes meanwhile, be it little. */
static void test_what_is_submitted_ends_a_pause(void **state)
{
    (void)state;
    struct lanes lanes;
    struct err err = {0};
    begin(&lanes.f, false);
    lanes.f.queue.run = run_pausing;
    lanes.f.queue.beside = everything_runs_beside;
    lanes.f.queue.lanes = 2;
    sem_init(&lanes.second_has_run, 0, 0);
    assert_int_equal(queue_start(&lanes.f.queue, &err), ERR_NONE);
    submit(&lanes.f, 0, 1);
    for (bool pausing = false; !pausing;) {
        pthread_mutex_lock(&lanes.f.queue.mutex);
        pausing = lanes.f.queue.pausing == 1;
        pthread_mutex_unlock(&lanes.f.queue.mutex);
    }
    submit(&lanes.f, 1, 2);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    assert_int_equal(sem_timedwait(&lanes.second_has_run, &until), 0);
    finish(&lanes.f, 2);
    end(&lanes.f);
    sem_destroy(&lanes.second_has_run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_turns_that_bring_requests_share_a_batch),
        cmocka_unit_test(test_marks_of_delivery_are_put_off),
        cmocka_unit_test(test_a_long_turn_is_not_waited_for),
        cmocka_unit_test(test_what_is_staged_is_finished_at_the_end),
        cmocka_unit_test(test_without_turns_it_goes_at_once),
        cmocka_unit_test(test_a_full_queue_refuses),
        cmocka_unit_test(test_batches_are_handed_over_in_their_order),
        cmocka_unit_test(test_refusals_wait_for_no_other_batch),
        cmocka_unit_test(test_what_is_submitted_ends_a_pause),
    };
    return cmocka_run_group_tests_name("queue", tests, NULL, NULL);
}
