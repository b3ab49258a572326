/* Who calls, once authenticated. Texts and scope live as long as the exchange (or the session) that holds it. */
#ifndef DOOR_CALLER_H
#define DOOR_CALLER_H

#include "core/registry.h"
#include "core/scope.h"
#include "ledger/ledger.h"

struct caller {
    const char *tenant, *principal;
    enum role role;
    const struct scope *scope; /* of the token; NULL = not limited */
};

/* What a principal's name may consist of, wherever it comes from. */
#define PRINCIPAL_BYTES_MAX 128

/* Whether a caller may see and call the tool: by the registry file (principals) and by its token. */
static inline bool caller_may_use(const struct registry *registry, const char *principal, const struct scope *scope,
                                  const struct tool *tool)
{
    return registry_allows(registry, principal, tool) && scope_allows_tool(scope, tool->name);
}

/* Whether what an operation holds is within the caller's token: a limited one sees no arguments and results of others.
 */
bool caller_covers(const struct scope *scope, const struct operation *op);

#endif
