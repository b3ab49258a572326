/* What must hold of an operation as it is stored, together with its events and attempts, whatever its life was: the
 * rules of design 2, 3, 5, 8 and 15 as far as rows alone can tell. Pure. `onced ledger verify` and the simulator's
 * checker judge by these; what two rows say of each other is here, too. */
#ifndef CORE_AUDIT_H
#define CORE_AUDIT_H

#include "core/operation.h"
#include "core/steps.h"

struct audit {
    const struct operation *op; /* borrowed; with its payload */
    /* Called for each thing that is wrong: the rule's name and what it says, what is stored. Texts are good for the
     * call. */
    void (*report)(void *user, const char *rule, const char *expected, const char *found);
    void *user;
    size_t reports;

    /* the audit's own */
    struct audit_try *tries; /* by number */
    size_t try_count, try_room;
    bool any_event;
    int64_t last_sequence;
    enum state last;
};

void audit_begin(struct audit *audit, const struct operation *op,
                 void (*report)(void *user, const char *rule, const char *expected, const char *found), void *user);
/* Lines of history in their order: the number of each (rev * 4 + position; not told where it is not known), then what
 * it holds. Of an attempt each line counts. */
void audit_line(struct audit *audit, int64_t sequence);
void audit_event(struct audit *audit, const struct event *event);
void audit_attempt(struct audit *audit, const struct attempt *attempt);
/* The rest; releases what the audit holds. */
void audit_end(struct audit *audit);

/* Whether the fingerprint is that of the stored arguments. False, too, where the tool leaves members out of it
 * (`volatile`), which the row does not tell; true when arguments are no longer there. */
bool audit_fingerprint(const struct operation *op);

/* ---- two rows ---- */

/* What is left of another operation: its row, its tombstone, or neither. */
struct audit_other {
    const struct operation *op;
    const struct tombstone *stone;
};

/* op and the version of its key before it (op->previous). */
void audit_previous(struct audit *audit, const struct audit_other *former);
/* op and what it undoes (op->compensates). */
void audit_compensates(struct audit *audit, const struct audit_other *original);
/* op and what undoes it (op->compensation). */
void audit_compensation(struct audit *audit, const struct audit_other *by);
/* op and the multi-step operation that it is a step of, or in whose rollback it is (op->parent). */
void audit_parent(struct audit *audit, const struct audit_other *parent);
/* op and the operation of one of its steps (an entry of op->steps). */
void audit_step(struct audit *audit, const struct steps_entry *entry, const struct audit_other *step);

#endif
