#include "door/caller.h"

bool caller_covers(const struct scope *scope, const struct operation *op)
{
    struct err err = {0};
    return scope_check_operation(scope, op, &err) == ERR_NONE;
}
