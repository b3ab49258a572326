/* Server-sent events (WHATWG HTML, "server-sent events"): reading from pieces as they come, and writing. */
#ifndef BASE_SSE_H
#define BASE_SSE_H

#include "base/buf.h"

#include <stdint.h>

/* One event. Texts are valid during the callback. Events are told that have data (also empty), an id or a retry time.
 */
struct sse_event {
    struct str type;  /* "message" when not named */
    struct str data;  /* lines joined by "\n"; empty data is told too (MCP primes streams with it) */
    struct str id;    /* absent when the event has none */
    int64_t retry_ms; /* -1 = not given */
};

typedef void sse_event_fn(void *user, const struct sse_event *event);

struct sse_reader {
    struct buf line, data, type, id;
    bool has_id, has_data, cr, started, over;
    bool *gone; /* on the stack of sse_reader_feed while it tells */
    int64_t retry_ms;
    sse_event_fn *event;
    void *user;
};

/* bytes_max > 0 bounds each line and each field of one event. */
void sse_reader_init(struct sse_reader *reader, size_t bytes_max, sse_event_fn *event, void *user);
void sse_reader_release(struct sse_reader *reader);
/* false: an event is over the limit; the stream is of no use any more. The callback may release the reader and free
 * what it lies in: then feed returns true at once. */
bool sse_reader_feed(struct sse_reader *reader, const char *bytes, size_t n);

/* Appends one event; type, id and data may be absent, retry_ms < 0 is left out. data may hold line ends (a "\r" comes
 * out as "\n"); type and id end before theirs. */
void sse_write(struct buf *out, struct str type, struct str id, int64_t retry_ms, struct str data);

#endif
