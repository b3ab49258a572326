/* ISO 4217: how many digits the minor unit of a currency has. */
#ifndef CORE_CURRENCY_H
#define CORE_CURRENCY_H

#include "base/str.h"

/* Digits of the minor unit (EUR 2, JPY 0, KWD 3), -1 for a code that is not an active currency with a minor unit.
 * Letters of either case. */
int currency_digits(struct str code);

#endif
