/* What ledgers with a thread of their own share: the queue to it, the batches that it takes off, the way back.
 *
 *   submitting thread                                ledger thread
 *   submit ──▶ staged ──turn──▶ waiting ──(up to batch_max)──▶ one batch: executed and committed
 *   poll   ◀── finished ◀────────────────────────────────────── all at once, one notification
 *
 * With turn (ledger.h) what is submitted is staged until the loop has nothing more of it. Otherwise the first of many
 * requests would set the ledger thread going alone, with a commit and its sync to the disk for itself, while the others
 * are still being made. A good number of them is not kept waiting, so that both threads have work. That an answer was
 * delivered nobody asks but the admissions behind it: such marks alone are put off for a moment, to go with what comes.
 *
 * A ledger can have several lanes, each a thread: while one waits for the disk another executes the next batch, as far
 * as the owner says that it may run beside (beside). Batches are handed over in the order in which they were taken.
 *
 * Not for others. */
#ifndef LEDGER_QUEUE_H
#define LEDGER_QUEUE_H

#include "ledger/ledger.h"

#include <pthread.h>

#define QUEUE_BATCH_DEFAULT 512
#define QUEUE_BATCH_MAX     4096
#define QUEUE_STAGED_MAX    32
#define QUEUE_PUT_OFF_MS    10
#define QUEUE_LANES_MAX     2
#define QUEUE_BESIDE_LEAST  8 /* fewer requests than these do not get a commit of their own beside another batch */

struct queue_list {
    struct ledger_request *first, **last;
};

struct queue_lane {
    struct queue *queue;
    int number;
    pthread_t thread;
    bool started;
    bool busy;     /* at a batch */
    uint64_t turn; /* of the batch at hand: the batches before it are handed over first */
    bool roused;   /* it shall look anew whether it rests */
};

struct queue {
    void (*notify)(void *user); /* as in the options of the ledgers */
    void *user;
    size_t batch_max;
    void (*turn)(void *user); /* as in the options of the ledgers; NULL: nothing is staged */
    /* Executes one batch; sets code and err of each. */
    void (*run)(void *owner, int lane, struct ledger_request *first, size_t count);
    /* Under the mutex: a lane is about to take a batch, others say whether another lane is at one. How many of its
     * requests, from the first on, it may take. NULL: one lane only. */
    size_t (*beside)(void *owner, int lane, struct ledger_request *first, size_t count, bool others);
    int lanes; /* 0 = 1 */
    /* A lane is about to wait for a batch: for how many ms it shall rest first, 0 = not at all. NULL: never. */
    int (*rest)(void *owner, int lane);
    void (*after)(void *owner); /* when the batch was handed over; NULL = nothing */
    void *owner;
    struct queue_lane lane[QUEUE_LANES_MAX];
    struct queue_list staged; /* the submitting thread's */
    size_t staged_count;
    size_t urgent, urgent_before; /* those of them that can not be put off: now; at the end of the turn before */
    bool put_off;                 /* the others were */
    pthread_mutex_t mutex;        /* guards from here … */
    pthread_cond_t work;          /* something is waiting, or stopping */
    pthread_cond_t ready;         /* something is finished */
    pthread_cond_t order;         /* a batch was handed over, or stopping */
    struct queue_list waiting, finished;
    size_t waiting_count;
    size_t queued; /* waiting or being executed */
    bool closing;  /* the ledger is being closed: what was submitted is finished, nobody waits for better times */
    bool stopping;
    int idle;         /* lanes that wait for work */
    int pausing;      /* lanes in queue_pause: whatever is submitted wakes them */
    int busy;         /* lanes that are at a batch */
    uint64_t taken;   /* batches */
    int64_t commands; /* executed since start; … to here */
};

/* batch_max 0 means the default; larger than QUEUE_BATCH_MAX means that. turn, run, beside, lanes, rest, after and
 * owner are the caller's to set before the start. */
void queue_init(struct queue *queue, size_t batch_max, void (*notify)(void *user), void *user);
enum err_code queue_start(struct queue *queue, struct err *err);
/* Finishes what was submitted, ends the threads; before start: nothing to do. */
void queue_stop(struct queue *queue);
void queue_release(struct queue *queue);

/* The commands of struct ledger_ops. */
void queue_submit(struct queue *queue, struct ledger_request *request);
int queue_turn(struct queue *queue);
void queue_poll(struct queue *queue);
void queue_wait(struct queue *queue, int timeout_ms);

/* ---- for the ledger thread ---- */

/* Waits until the batches that were taken before this lane's are handed over: then none is beside it that it could have
 * to see. */
void queue_await_others(struct queue *queue, int lane);
/* If the lane waits for a batch, the owner is asked anew whether it shall rest. */
void queue_rouse(struct queue *queue, int lane);
/* Ends all that waits now with err, ahead of the batch at hand: while a ledger is away nobody waits for it. */
void queue_refuse(struct queue *queue, const struct err *err);
/* The ledger is to be closed. */
bool queue_closing(struct queue *queue);
/* Waits up to timeout_ms, less when the ledger is to be closed or something is submitted; true: it is to be closed. */
bool queue_pause(struct queue *queue, int timeout_ms);

/* A thread that takes no signals: they are the main thread's business. Returns as pthread_create. */
int queue_thread(pthread_t *thread, void *(*main)(void *arg), void *arg);

/* What admission changes in a request, to be put back before it is executed again. */
struct saved_identity {
    int key_version;
    const char *previous;
};
void saved_identity_take(struct saved_identity *saved, const struct ledger_request *request);
void saved_identity_put(const struct saved_identity *saved, struct ledger_request *request);

void request_fail(struct ledger_request *request, const struct err *err);
void request_fail_all(struct ledger_request *first, size_t count, const struct err *err);

#endif
