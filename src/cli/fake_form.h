/* application/x-www-form-urlencoded with brackets (metadata[operation]=…, items[0][name]=…, tags[]=…) as a JSON object.
 */
#ifndef CLI_FAKE_FORM_H
#define CLI_FAKE_FORM_H

#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"

#define FAKE_FORM_MEMBERS_MAX 1000
#define FAKE_FORM_DEPTH_MAX   8

/* Values that look like an integer become numbers, except below metadata (as payment APIs do); all others are texts.
 * ERR_INVALID for bad escapes, unbalanced brackets and names used as value and as object; ERR_LIMIT past the limits. */
enum err_code fake_form_parse(struct arena *arena, struct str text, struct json **out, struct err *err);

#endif
