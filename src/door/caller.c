#include "door/caller.h"

bool caller_covers(const struct scope *scope, const struct operation *op)
{
    return scope_allows_tool(scope, op->tool);
}
