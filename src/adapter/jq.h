/* jq programs of the registry file (libjq 1.6): compiled when the file is loaded, run on our JSON. Programs are pure:
 * neither environment, files, clock nor further inputs can be reached, so that a request built twice is the same byte
 * for byte. jq computes in double precision; numbers that it would change are refused, never rounded silently. */
#ifndef ADAPTER_JQ_H
#define ADAPTER_JQ_H

#include "base/json.h"

/* Of a program's text, and of what one run may give (bytes as JSON text, roughly; nesting). */
#define JQ_PROGRAM_BYTES_MAX (64 * 1024)
#define JQ_RESULT_BYTES_MAX  (4 * 1024 * 1024)
#define JQ_DEPTH_MAX         64

struct jq_program;

/* What a program of the request side sees as $operation, $key, $tenant, $run, $external_id; NULL is null there. */
struct jq_places {
    const char *operation, *key, *tenant, *run, *external_id;
};

/* Compiles text (copied). with_places: the names of struct jq_places are defined; run then takes them. ERR_INVALID with
 * jq's own message, or with the name of what a program may not use. Takes some 30 ms (libjq parses its library each
 * time). */
enum err_code jq_program_new(const char *text, bool with_places, struct jq_program **out, struct err *err);
void jq_program_free(struct jq_program *program); /* NULL is fine */

/* Runs on input and gives the one value that the program must yield (none or several: ERR_INVALID), in arena. Numbers
 * of the input that double precision cannot hold are refused with their pointer, ERR_INVALID; numbers of the result
 * have the shortest digits that read back as the same double. Runtime errors: ERR_INVALID with jq's message. places is
 * NULL unless the program was compiled with them. Not reentrant per program. */
enum err_code jq_program_run(struct jq_program *program, struct arena *arena, const struct json *input,
                             const struct jq_places *places, struct json **out, struct err *err);

/* Runs a condition: true unless the first value is false, null or missing. As only truth comes out, numbers beyond
 * double precision are taken as the nearest double instead of being refused. */
enum err_code jq_program_test(struct jq_program *program, const struct json *input, bool *out, struct err *err);

#endif
