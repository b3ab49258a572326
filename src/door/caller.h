/* Who calls, once authenticated. Texts and scope live as long as the exchange (or the session) that holds it. */
#ifndef DOOR_CALLER_H
#define DOOR_CALLER_H

#include "core/scope.h"
#include "ledger/ledger.h"

struct caller {
    const char *tenant, *principal;
    enum role role;
    const struct scope *scope; /* of the token; NULL = not limited */
};

/* What a principal's name may consist of, wherever it comes from. */
#define PRINCIPAL_BYTES_MAX 128

#endif
