/* Words for people and models: what is known about an operation, and never more than that. */
#ifndef DOOR_MESSAGE_H
#define DOOR_MESSAGE_H

#include "door/shape.h"

/* Appends what an answer adds in words: already done, joined, result gone, result withheld. Nothing when there is
 * nothing to add. */
void message_note(struct buf *out, const struct operation *op, const struct tool *tool, const struct shape_view *view);

#endif
