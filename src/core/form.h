/* Arguments as playbooks and steps have them: JSON with places in its texts (core/template.h). A text that is nothing
 * but one place takes the value as it is, whatever its type. */
#ifndef CORE_FORM_H
#define CORE_FORM_H

#include "base/json.h"

#define FORM_TEXT_BYTES_MAX (1024 * 1024) /* of one text that places are put into */

/* *out in arena, also where form is no object. ERR_INVALID names the place that is missing, ERR_LIMIT a text that is
 * too long. */
enum err_code form_fill(struct arena *arena, const struct json *form, const struct json *values, struct json **out,
                        struct err *err);

#endif
