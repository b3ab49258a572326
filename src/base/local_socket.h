/* Unix stream sockets by path, of any length (the address has room for 107 bytes): how processes of one user reach the
 * one that has a ledger. Descriptors are non-blocking and close-on-exec. */
#ifndef BASE_LOCAL_SOCKET_H
#define BASE_LOCAL_SOCKET_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

#define LOCAL_SOCKET_NAME_MAX 80 /* bytes of the last part of a longer path */

/* Listens at path, mode 0600 from the beginning. A socket file that nobody listens on is replaced; one that somebody
 * does is ERR_CONFLICT, as is anything else than a socket. ERR_LIMIT: the name; ERR_IO: the system. */
enum err_code local_socket_listen(const char *path, int *out, struct err *err);
/* ERR_NOT_FOUND: nobody listens there, or nothing is there; ERR_UNAVAILABLE: somebody does, but takes nobody now. */
enum err_code local_socket_connect(const char *path, int *out, struct err *err);
/* Whether the process at the other end is this user's or root's. */
bool local_socket_trusted(int fd);

#endif
