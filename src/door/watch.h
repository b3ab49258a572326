/* Sockets that libmicrohttpd does not look at for a while, watched through a duplicate of the descriptor, so that
 * nobody can close it under the watcher. */
#ifndef DOOR_WATCH_H
#define DOOR_WATCH_H

#include <uv.h>

struct watch;

/* Calls gone(user) once, from the loop, when the other side closes its end or the connection breaks. NULL when the
 * system has no descriptor left: then nobody is told. */
struct watch *watch_begin(uv_loop_t *loop, int fd, void (*gone)(void *user), void *user);
void watch_end(struct watch *watch); /* NULL is fine; gone is not called any more */

/* Connections that are closed while the other side is still sending a body that was refused: closing at once would
 * reset the connection and with it the answer that is on its way. Their input is read and thrown away for a moment. */
#define LINGERS_MAX      32
#define LINGER_MS        2000
#define LINGER_BYTES_MAX (64 * 1024 * 1024)

struct lingerer;
struct lingers {
    uv_loop_t *loop;
    struct lingerer *first;
    unsigned count;
};
void linger_begin(struct lingers *lingers, int fd); /* fd is borrowed (duplicated) */
void lingers_tick(struct lingers *lingers);         /* ends those whose time is over */
void lingers_end(struct lingers *lingers);

#endif
