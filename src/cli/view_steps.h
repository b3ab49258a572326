/* Multi-step operations in the terminal (design 10.2): their steps, and what a person can do about them. */
#ifndef CLI_VIEW_STEPS_H
#define CLI_VIEW_STEPS_H

#include "base/json.h"
#include "cli/out.h"

/* Whether the operation, as the daemon shows it, is one. */
bool view_has_steps(const struct json *operation);
/* One line per step: status, name, tool, operation, what undid it; below it why it failed or is stuck. Nothing when
 * there are none. */
void view_steps(struct out *out, const struct json *operation);
/* Of a multi-step operation, what of it stands, in words. */
const char *view_steps_effect(const struct json *operation);
/* The commands to type next, as lines of text below "next". */
void view_steps_next(struct out *out, const struct json *operation);

#endif
