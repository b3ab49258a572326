#include "ledger/queue.h"

#include "base/mark.h"

#include <errno.h>
#include <signal.h>
#include <time.h>

/* ---- lists ---- */

static void list_init(struct queue_list *list)
{
    list->first = NULL;
    list->last = &list->first;
}

static void list_append(struct queue_list *list, struct ledger_request *request)
{
    request->next = NULL;
    *list->last = request;
    list->last = &request->next;
}

static struct timespec moment_in(int timeout_ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    return until;
}

/* ---- the threads ---- */

/* How many of those that wait this lane may take now. */
static size_t may_take(struct queue *queue, const struct queue_lane *lane)
{
    size_t count = queue->waiting_count < queue->batch_max ? queue->waiting_count : queue->batch_max;
    bool others = queue->busy > 0;
    if (count == 0 || (others && count < QUEUE_BESIDE_LEAST))
        return 0;
    if (queue->beside)
        count = queue->beside(queue->owner, lane->number, queue->waiting.first, count, others);
    return others && count < QUEUE_BESIDE_LEAST ? 0 : count;
}

/* Takes up to batch_max requests off the queue, waits for the first one. Zero: time to end, or the lane was roused. */
static size_t take_batch(struct queue *queue, struct queue_lane *lane, struct ledger_request **first)
{
    size_t count = 0;
    pthread_mutex_lock(&queue->mutex);
    while (!lane->roused && (count = may_take(queue, lane)) == 0 && !(queue->stopping && !queue->waiting.first)) {
        queue->idle++;
        pthread_cond_wait(&queue->work, &queue->mutex);
        queue->idle--;
    }
    *first = queue->waiting.first;
    struct ledger_request *last = *first;
    for (size_t i = 1; i < count; i++)
        last = last->next;
    if (count > 0) {
        queue->waiting.first = last->next;
        queue->waiting_count -= count;
        last->next = NULL;
        queue->busy++;
        lane->busy = true;
        lane->turn = queue->taken++;
    }
    if (!queue->waiting.first)
        list_init(&queue->waiting);
    pthread_mutex_unlock(&queue->mutex);
    return count;
}

/* Under the mutex; true: nobody was told yet that something is finished. */
static bool append_finished(struct queue *queue, struct ledger_request *first, size_t count)
{
    struct ledger_request *last = first;
    while (last->next)
        last = last->next;
    bool quiet = !queue->finished.first; /* else the notification for the ones before has not been followed yet */
    *queue->finished.last = first;
    queue->finished.last = &last->next;
    queue->queued -= count;
    pthread_cond_signal(&queue->ready);
    return quiet;
}

static bool is_next(const struct queue *queue, const struct queue_lane *lane)
{
    for (int i = 0; i < QUEUE_LANES_MAX; i++)
        if (queue->lane[i].busy && queue->lane[i].turn < lane->turn)
            return false;
    return true;
}

static void await_turn(struct queue *queue, const struct queue_lane *lane)
{
    while (!is_next(queue, lane))
        pthread_cond_wait(&queue->order, &queue->mutex);
}

/* Refusals need not wait, as in queue_refuse: the batch before may be one that is being found out about. */
static bool all_refused(const struct ledger_request *first)
{
    while (first && first->code == ERR_UNAVAILABLE)
        first = first->next;
    return !first;
}

static void hand_over(struct queue *queue, struct queue_lane *lane, struct ledger_request *first, size_t count)
{
    pthread_mutex_lock(&queue->mutex);
    if (!all_refused(first))
        await_turn(queue, lane);
    bool quiet = append_finished(queue, first, count);
    queue->commands += (int64_t)count;
    lane->busy = false;
    queue->busy--;
    if (queue->busy > 0)
        pthread_cond_broadcast(&queue->order);
    pthread_mutex_unlock(&queue->mutex);
    if (quiet && queue->notify)
        queue->notify(queue->user);
}

void queue_await_others(struct queue *queue, int lane)
{
    pthread_mutex_lock(&queue->mutex);
    await_turn(queue, &queue->lane[lane]);
    pthread_mutex_unlock(&queue->mutex);
}

/* Until the owner says that the lane can work, or there is none any more. */
static void rest(struct queue *queue, const struct queue_lane *lane)
{
    for (int ms; queue->rest && (ms = queue->rest(queue->owner, lane->number)) > 0;) {
        struct timespec until = moment_in(ms);
        pthread_mutex_lock(&queue->mutex);
        for (int rc = 0; rc == 0 && !queue->stopping;)
            rc = pthread_cond_timedwait(&queue->order, &queue->mutex, &until);
        bool stopping = queue->stopping;
        pthread_mutex_unlock(&queue->mutex);
        if (stopping)
            return;
    }
}

/* After no batch was taken. */
static bool is_over(struct queue *queue, struct queue_lane *lane)
{
    pthread_mutex_lock(&queue->mutex);
    bool over = !lane->roused;
    lane->roused = false;
    if (queue->waiting.first)
        pthread_cond_signal(&queue->work); /* it may have been woken in the place of another one */
    pthread_mutex_unlock(&queue->mutex);
    return over;
}

void queue_rouse(struct queue *queue, int lane)
{
    pthread_mutex_lock(&queue->mutex);
    queue->lane[lane].roused = true;
    pthread_cond_broadcast(&queue->work);
    pthread_mutex_unlock(&queue->mutex);
}

static void *lane_main(void *arg)
{
    struct queue_lane *lane = arg;
    struct queue *queue = lane->queue;
    struct ledger_request *first;
    size_t count;
    pthread_setname_np(pthread_self(), "ledger");
    for (;;) {
        rest(queue, lane);
        if ((count = take_batch(queue, lane, &first)) == 0) {
            if (is_over(queue, lane))
                return NULL;
            continue;
        }
        queue->run(queue->owner, lane->number, first, count);
        MARK(batch_committed);
        hand_over(queue, lane, first, count);
        if (queue->after)
            queue->after(queue->owner);
    }
}

int queue_thread(pthread_t *thread, void *(*main)(void *arg), void *arg)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(thread, NULL, main, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

void queue_refuse(struct queue *queue, const struct err *err)
{
    pthread_mutex_lock(&queue->mutex);
    struct ledger_request *first = queue->waiting.first;
    size_t count = queue->waiting_count;
    list_init(&queue->waiting);
    queue->waiting_count = 0;
    for (struct ledger_request *request = first; request; request = request->next)
        request_fail(request, err);
    bool quiet = first && append_finished(queue, first, count);
    pthread_mutex_unlock(&queue->mutex);
    if (quiet && queue->notify)
        queue->notify(queue->user);
}

bool queue_closing(struct queue *queue)
{
    pthread_mutex_lock(&queue->mutex);
    bool closing = queue->closing;
    pthread_mutex_unlock(&queue->mutex);
    return closing;
}

bool queue_pause(struct queue *queue, int timeout_ms)
{
    struct timespec until = moment_in(timeout_ms);
    int rc = 0;
    pthread_mutex_lock(&queue->mutex);
    while (!queue->waiting.first && !queue->closing && rc == 0) {
        queue->pausing++;
        rc = pthread_cond_timedwait(&queue->work, &queue->mutex, &until);
        queue->pausing--;
    }
    bool closing = queue->closing;
    pthread_mutex_unlock(&queue->mutex);
    return closing;
}

/* ---- the interface ---- */

/* Under the mutex. The only case, but for queue_refuse, in which a request overtakes others; true: nobody was told yet
 * that something is finished. */
static bool refuse_full(struct queue *queue, struct ledger_request *request)
{
    bool first = !queue->finished.first;
    request->code = err_set(&request->err, ERR_UNAVAILABLE, "the ledger has %d commands waiting: try again later",
                            LEDGER_QUEUE_MAX);
    list_append(&queue->finished, request);
    pthread_cond_signal(&queue->ready);
    return first;
}

static void flush(struct queue *queue)
{
    bool refused_first = false;
    struct ledger_request *request = queue->staged.first, *next;
    if (!request)
        return;
    list_init(&queue->staged);
    queue->staged_count = queue->urgent = queue->urgent_before = 0;
    queue->put_off = false;
    pthread_mutex_lock(&queue->mutex);
    for (; request; request = next) {
        next = request->next;
        if (queue->queued < LEDGER_QUEUE_MAX) {
            list_append(&queue->waiting, request);
            queue->waiting_count++;
            queue->queued++;
        } else {
            refused_first |= refuse_full(queue, request);
        }
    }
    size_t least = queue->busy > 0 ? QUEUE_BESIDE_LEAST : 1;
    bool wake = queue->idle > 0 && queue->waiting_count >= least;
    bool wake_all = queue->pausing > 0 && queue->waiting.first;
    pthread_mutex_unlock(&queue->mutex);
    if (wake_all)
        pthread_cond_broadcast(&queue->work);
    else if (wake)
        pthread_cond_signal(&queue->work);
    if (refused_first && queue->notify)
        queue->notify(queue->user);
}

/* That an answer was delivered. One that gets lost, because the process dies, means at most that it is given again. */
static bool is_urgent(const struct ledger_request *request)
{
    const struct ledger_mark *mark = &request->mark;
    return request->command != LEDGER_MARK || mark->orphaned || mark->not_orphaned;
}

void queue_submit(struct queue *queue, struct ledger_request *request)
{
    bool urgent = is_urgent(request);
    list_append(&queue->staged, request);
    queue->staged_count++;
    queue->urgent += urgent;
    if (!queue->turn || queue->staged_count == QUEUE_STAGED_MAX)
        flush(queue);
    else if (queue->staged_count == 1 || (urgent && queue->urgent == 1))
        queue->turn(queue->user);
}

int queue_turn(struct queue *queue)
{
    if (queue->urgent > queue->urgent_before) {
        queue->urgent_before = queue->urgent;
        return 0;
    }
    if (queue->urgent == 0 && queue->staged_count > 0 && !queue->put_off) {
        queue->put_off = true;
        return QUEUE_PUT_OFF_MS;
    }
    flush(queue);
    return -1;
}

void queue_poll(struct queue *queue)
{
    pthread_mutex_lock(&queue->mutex);
    struct ledger_request *request = queue->finished.first;
    list_init(&queue->finished);
    pthread_mutex_unlock(&queue->mutex);
    while (request) {
        struct ledger_request *next = request->next; /* done may free the request */
        request->next = NULL;
        request->done(request);
        request = next;
    }
}

void queue_wait(struct queue *queue, int timeout_ms)
{
    struct timespec until = moment_in(timeout_ms);
    flush(queue);
    pthread_mutex_lock(&queue->mutex);
    int rc = 0;
    while (!queue->finished.first && rc == 0)
        rc = pthread_cond_timedwait(&queue->ready, &queue->mutex, &until);
    pthread_mutex_unlock(&queue->mutex);
}

/* Waits until something is finished; false when nothing is left to wait for. */
static bool wait_for_rest(struct queue *queue)
{
    flush(queue);
    pthread_mutex_lock(&queue->mutex);
    queue->closing = true;
    pthread_cond_broadcast(&queue->work);
    while (!queue->finished.first && queue->queued > 0)
        pthread_cond_wait(&queue->ready, &queue->mutex);
    bool some = queue->finished.first;
    pthread_mutex_unlock(&queue->mutex);
    return some;
}

void queue_init(struct queue *queue, size_t batch_max, void (*notify)(void *user), void *user)
{
    *queue = (struct queue){.notify = notify, .user = user, .batch_max = batch_max ? batch_max : QUEUE_BATCH_DEFAULT};
    if (queue->batch_max > QUEUE_BATCH_MAX)
        queue->batch_max = QUEUE_BATCH_MAX;
    list_init(&queue->staged);
    list_init(&queue->waiting);
    list_init(&queue->finished);
    pthread_mutex_init(&queue->mutex, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&queue->work, &monotonic);
    pthread_cond_init(&queue->ready, &monotonic);
    pthread_cond_init(&queue->order, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

enum err_code queue_start(struct queue *queue, struct err *err)
{
    for (int i = 0; i == 0 || i < queue->lanes; i++) {
        struct queue_lane *lane = &queue->lane[i];
        lane->queue = queue;
        lane->number = i;
        int rc = queue_thread(&lane->thread, lane_main, lane);
        if (rc != 0)
            return err_set(err, ERR_IO, "the ledger thread can not be started: %s", strerror(rc));
        lane->started = true;
    }
    return ERR_NONE;
}

void queue_stop(struct queue *queue)
{
    if (!queue->lane[0].started)
        return;
    while (wait_for_rest(queue))
        queue_poll(queue);
    pthread_mutex_lock(&queue->mutex);
    queue->stopping = true;
    pthread_cond_broadcast(&queue->work);
    pthread_cond_broadcast(&queue->order);
    pthread_mutex_unlock(&queue->mutex);
    for (int i = 0; i < QUEUE_LANES_MAX; i++) {
        if (queue->lane[i].started)
            pthread_join(queue->lane[i].thread, NULL);
        queue->lane[i].started = false;
    }
}

void queue_release(struct queue *queue)
{
    pthread_cond_destroy(&queue->work);
    pthread_cond_destroy(&queue->ready);
    pthread_cond_destroy(&queue->order);
    pthread_mutex_destroy(&queue->mutex);
}

/* ---- requests ---- */

void saved_identity_take(struct saved_identity *saved, const struct ledger_request *request)
{
    if (request->command == LEDGER_ADMIT)
        *saved =
            (struct saved_identity){request->admit.admission.op->key_version, request->admit.admission.op->previous};
}

void saved_identity_put(const struct saved_identity *saved, struct ledger_request *request)
{
    if (request->command == LEDGER_ADMIT) {
        request->admit.admission.op->key_version = saved->key_version;
        request->admit.admission.op->previous = saved->previous;
    }
}

void request_fail(struct ledger_request *request, const struct err *err)
{
    request->code = err->code;
    request->err = *err;
}

void request_fail_all(struct ledger_request *first, size_t count, const struct err *err)
{
    for (size_t i = 0; i < count; i++, first = first->next)
        request_fail(first, err);
}
