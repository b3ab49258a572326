/* Marked points: places where a crash matters, for tests with real processes (test/e2e/test_kill_points.py). Built in
 * only with the Meson option `marks`; a release has none of it, not even the names.
 *
 *     ONCED_KILL_AT=before_send:3      the third pass of that mark ends the process by SIGKILL, as `kill -9` would
 *
 * An unknown name or a malformed value ends the program with status 2 at the first mark: a test that names a mark
 * which is no longer there shall not pass. Any thread may pass a mark. */
#ifndef BASE_MARK_H
#define BASE_MARK_H

/* Marks of parts that not every traffic reaches: tests of their own name them. */
#define MARKS_OF_PARTS(X)                                                                                              \
    /* admission: the guards have looked at the entities; the ledger is not asked yet */ X(guards_judged)              \
    /* a planned operation holds its entities; it has no slot */ X(entities_held)                                      \
    /* guard mode: the application is about to be told to begin */ X(guard_begun)                                      \
    /* guard mode: another caller takes it up (durable); it is not told so */ X(guard_taken)                           \
    /* multi-step: the next step is worked out; its admission is not submitted */ X(step_admitting)                    \
    /* forwarding: the try is written down; nothing was posted */ X(forward_written)                                   \
    /* forwarding: the endpoint has answered; nothing is written */ X(forward_answered)                                \
    /* SQL: the record's key is inserted or was there; … */ X(sql_claimed)                                             \
    /* … all of the tool's statements were answered; … */ X(sql_executed)                                              \
    /* … COMMIT is all that is missing; … */ X(sql_recorded)                                                           \
    /* … its answer is here */ X(sql_committed)                                                                        \
    /* outbox relay: rows are taken, none is sent; … */ X(relay_taken)                                                 \
    /* … a call is answered, its row is not marked; … */ X(relay_answered)                                             \
    /* … the same of a look at an operation; … */ X(relay_looked)                                                      \
    /* … COMMIT is all that is missing; … */ X(relay_marked)                                                           \
    /* … the marks are durable */ X(relay_committed)                                                                   \
    /* several gateways: a stopping one lets go of what it holds; … */ X(before_hand_over)                             \
    /* … another one's move is known, callers who wait here are not told */ X(news_answered)                           \
    /* notifications: about to be posted; … */ X(before_notify)                                                        \
    /* … taken by the receiver, and nobody here knows */ X(notified)

/* All marks, in the order in which a call meets them. The tests read this table. */
#define MARKS(X)                                                                                                       \
    /* start */                                                                                                        \
    X(ledger_created)    /* a new file has its tables; its folder is not synced */                                     \
    X(ledger_opened)     /* tables, log and secret are there; nothing was asked yet */                                 \
    X(claim_done)        /* rows were taken over (committed); no step for them */                                      \
    X(before_owner_gone) /* a dead owner's attempts were read; the step is not made */                                 \
    /* admission */                                                                                                    \
    X(admission_submitted) /* the ledger thread has it */                                                              \
    X(admission_committed) /* the verdict is back: the row may be there and the caller knows nothing */                \
    X(queued)              /* admitted without a free slot: waits in memory */                                         \
    /* the ledger's commit */                                                                                          \
    X(before_sql_commit) /* all commands of the batch ran; nothing is in the log */                                    \
    X(log_written)       /* the log has the frames; they are not synced */                                             \
    X(log_synced)        /* they are; SQLite does not know yet */                                                      \
    X(batch_committed)   /* durable; the engine does not know yet */                                                   \
    X(before_checkpoint) /* the log is long: about to be copied back */                                                \
    X(after_checkpoint)  /* it was */                                                                                  \
    /* the wire */                                                                                                     \
    X(before_send)     /* the row says dispatched; the adapter has nothing */                                          \
    X(request_let_out) /* connected; libcurl is about to write the request */                                          \
    X(request_written) /* the system has it, all or a first part */                                                    \
    X(answer_received) /* judged; no step */                                                                           \
    X(before_lookup)   /* as before_send, of a look-up */                                                              \
    X(lookup_answered) /* as answer_received, of a look-up */                                                          \
    /* after it */                                                                                                     \
    X(before_commit)     /* the step is made in memory; not submitted */                                               \
    X(commit_done)       /* the step is durable; nobody was told */                                                    \
    X(before_mark)       /* a flag (delivered, orphaned) is about to be set */                                         \
    X(mark_done)         /* it is set; nothing waits for it */                                                         \
    X(before_expire)     /* retention is over; the row is there */                                                     \
    X(expire_done)       /* the tombstone is */                                                                        \
    X(decision_loaded)   /* a person's decision met the row; no step */                                                \
    X(decision_answered) /* the decision is durable; the person was not told */                                        \
    /* end */                                                                                                          \
    X(stopping) /* a graceful stop has begun */                                                                        \
    MARKS_OF_PARTS(X)

#ifdef ONCED_MARKS
#define MARK_ENUM(name) MARK_##name,
enum mark { MARKS(MARK_ENUM) MARK_COUNT };
#undef MARK_ENUM
void mark_pass(enum mark mark);
#define MARK(name) mark_pass(MARK_##name)
#else
#define MARK(name) ((void)0)
#endif
/* For points that only some passes through the same line are. */
#define MARK_IF(condition, name) ((condition) ? MARK(name) : (void)0)

#endif
