/* Made-up arguments for the tools of a registry: the n-th intended effect of each tool, as the simulator and `onced
 * chaos` call it. Every value was judged by what a real call goes through: the tool's compiled schema, its normalisers,
 * its key template (core/identity.h). Not shared between threads. */
#ifndef SIM_ARGUMENTS_H
#define SIM_ARGUMENTS_H

#include "base/json.h"
#include "core/tool.h"

struct arguments;

/* examples: an object of tool name → array of argument objects, or NULL; borrowed. The n-th intent of such a tool is
 * made from the (n modulo their number)-th one: its members stay as they are, required ones that it leaves out are
 * made up. */
struct arguments *arguments_new(const struct json *examples);
void arguments_free(struct arguments *arguments); /* NULL is fine */

/* Makes the first `wanted` intents of a tool (whose struct must outlive `arguments`). *distinct: how many of them, from
 * the first on, are different intents for onced (by business key, else by fingerprint); at least 1. ERR_INVALID names
 * the member for which nothing can be made, or what refused the arguments. */
enum err_code arguments_check(struct arguments *arguments, const struct tool *tool, uint64_t wanted, uint64_t *distinct,
                              struct err *err);

/* Has the form of sim_arguments (sim.h); user is a struct arguments. variant 0 gives the arguments as made; others the
 * same intent written differently: members in another order, 49 as 49.0, whatever the tool's normalisers undo and its
 * volatile members. Equal (tool, n, variant, random) give equal texts; random matters for variants only. NULL when none
 * can be made. The value is the caller's, in arena. */
const struct json *arguments_give(void *user, const struct tool *tool, uint64_t n, unsigned variant, uint64_t random,
                                  struct arena *arena);

#endif
