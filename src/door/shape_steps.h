/* What callers see of multi-step tools (design 10.2): the steps of a parent, and words about how far they are. Pure. */
#ifndef DOOR_SHAPE_STEPS_H
#define DOOR_SHAPE_STEPS_H

#include "base/buf.h"
#include "core/operation.h"

/* Appends ,"steps":[{"name","tool","status","operation_id","undo_operation_id"?,"note"?}, …]; nothing when op is no
 * parent. arena for what must be worked out. withheld: without notes, which may carry providers' words. */
void shape_steps(struct buf *out, const struct operation *op, struct arena *arena, bool withheld);

/* Plain words about a parent that is under way, rolled back or failed, in arena; NULL where its state says all. */
const char *shape_steps_message(struct arena *arena, const struct operation *op);

#endif
