/* Sums of money and the like: exact decimals, 18 places behind the point, magnitudes below 10^18. Nothing is ever
 * rounded: what does not fit is refused. */
#ifndef BASE_DECIMAL_H
#define BASE_DECIMAL_H

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>

#define DECIMAL_PLACES     18
#define DECIMAL_TEXT_BYTES 48 /* longest text with its NUL */

__extension__ typedef __int128 decimal_units; /* not a struct: the compiler's own integer */

struct decimal {
    decimal_units units; /* of 10^-18 */
};

/* A decimal number as JSON writes it ("10.00", "1e3"), white space refused. ERR_INVALID for anything else, ERR_LIMIT
 * beyond 18 places or 10^18. */
enum err_code decimal_read(struct str text, struct decimal *out, struct err *err);
/* The shortest plain text: "10", "0.5", "-3". */
void decimal_write(struct decimal value, char out[DECIMAL_TEXT_BYTES]);

struct decimal decimal_of(long long whole);
/* A hundred values of full size add up exactly. */
struct decimal decimal_add(struct decimal a, struct decimal b);
struct decimal decimal_subtract(struct decimal a, struct decimal b);
int decimal_compare(struct decimal a, struct decimal b); /* <0, 0, >0 */

#endif
