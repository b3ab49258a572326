#include "base/local_socket.h"

#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 128

/* A path that does not fit is named through a descriptor of its folder, which stays open as long as the address is
 * used. */
struct address {
    struct sockaddr_un at;
    int folder; /* -1 = none */
};

static enum err_code address_through_folder(struct address *address, const char *path, struct err *err)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (strlen(name) > LOCAL_SOCKET_NAME_MAX)
        return err_set(err, ERR_LIMIT, "%s: a socket's name has at most %d bytes", path, LOCAL_SOCKET_NAME_MAX);
    char *folder = slash ? mem_copy_bytes(path, (size_t)(slash - path) + 1) : mem_copy_text(".");
    address->folder = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    free(folder);
    if (address->folder < 0)
        return err_set(err, errno == ENOENT || errno == ENOTDIR ? ERR_NOT_FOUND : ERR_IO, "%s: %s", path,
                       strerror(errno));
    snprintf(address->at.sun_path, sizeof address->at.sun_path, "/proc/self/fd/%d/%s", address->folder, name);
    return ERR_NONE;
}

static enum err_code address_init(struct address *address, const char *path, struct err *err)
{
    *address = (struct address){.at.sun_family = AF_UNIX, .folder = -1};
    if (strlen(path) >= sizeof address->at.sun_path)
        return address_through_folder(address, path, err);
    strcpy(address->at.sun_path, path);
    return ERR_NONE;
}

static void address_release(struct address *address)
{
    if (address->folder >= 0)
        close(address->folder);
}

static int new_socket(const char *path, struct err *err)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        err_set(err, ERR_IO, "%s: no socket can be made: %s", path, strerror(errno));
    return fd;
}

/* 0, or the error number. */
static int try_connect(const struct address *address, int fd)
{
    int status;
    do
        status = connect(fd, (const struct sockaddr *)&address->at, sizeof address->at);
    while (status != 0 && errno == EINTR);
    return status == 0 ? 0 : errno;
}

enum err_code local_socket_connect(const char *path, int *out, struct err *err)
{
    struct address address;
    int fd, error;
    enum err_code code = address_init(&address, path, err);
    if (code)
        return code;
    if ((fd = new_socket(path, err)) < 0) {
        address_release(&address);
        return ERR_IO;
    }
    error = try_connect(&address, fd);
    address_release(&address);
    if (error == 0) {
        *out = fd;
        return ERR_NONE;
    }
    close(fd);
    if (error == ENOENT || error == ECONNREFUSED || error == ENOTDIR)
        return err_set(err, ERR_NOT_FOUND, "%s: nobody listens there", path);
    if (error == EAGAIN)
        return err_set(err, ERR_UNAVAILABLE, "%s: too many wait there already", path);
    return err_set(err, ERR_IO, "%s: %s", path, strerror(error));
}

/* Whoever bound the file is gone: then it is in the way and nothing else. */
static enum err_code remove_dead(const struct address *address, const char *path, struct err *err)
{
    struct stat file;
    if (lstat(path, &file) != 0)
        return errno == ENOENT ? ERR_NONE : err_set(err, ERR_IO, "%s: %s", path, strerror(errno));
    if (!S_ISSOCK(file.st_mode))
        return err_set(err, ERR_CONFLICT, "%s is there and is no socket", path);
    int fd = new_socket(path, err);
    if (fd < 0)
        return ERR_IO;
    int error = try_connect(address, fd);
    close(fd);
    if (error != ECONNREFUSED && error != ENOENT)
        return err_set(err, ERR_CONFLICT, "another process listens on %s", path);
    if (unlink(path) != 0 && errno != ENOENT)
        return err_set(err, ERR_IO, "%s is left over and can not be removed: %s", path, strerror(errno));
    return ERR_NONE;
}

enum err_code local_socket_listen(const char *path, int *out, struct err *err)
{
    struct err own = {0};
    struct address address;
    int fd = -1, status = -1;
    err = err ? err : &own;
    if (address_init(&address, path, err))
        return err->code;
    if ((fd = new_socket(path, err)) < 0)
        goto out;
    if (fchmod(fd, 0600) != 0) { /* what bind gives to the file */
        err_set(err, ERR_IO, "%s: %s", path, strerror(errno));
        goto out;
    }
    for (int tries = 0; tries < 2 && status != 0; tries++) {
        if (tries && remove_dead(&address, path, err))
            goto out;
        status = bind(fd, (struct sockaddr *)&address.at, sizeof address.at);
        if (status != 0 && errno != EADDRINUSE)
            break;
    }
    if (status != 0 || listen(fd, BACKLOG) != 0)
        err_set(err, ERR_IO, "%s: nothing can be listened on there: %s", path, strerror(errno));
out:
    address_release(&address);
    if (err->code && fd >= 0)
        close(fd);
    if (!err->code)
        *out = fd;
    return err->code;
}

bool local_socket_trusted(int fd)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && (peer.uid == geteuid() || peer.uid == 0);
}
