/* A fast MCP server (legacy era) for the benchmark: `mcp_server` speaks on stdin and stdout, `mcp_server PORT`
 * streamable HTTP without sessions (port 0: a free one; prints {"port":N}). Two tools: read_value (read-only) and
 * write_value. It trusts its peer: messages are recognised by their bytes, not parsed. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BUFFER_BYTES    (1024 * 1024)
#define CONNECTIONS_MAX 1024

#define TOOL(name, hint)                                                                                               \
    "{\"name\":\"" name "\",\"description\":\"A value\",\"inputSchema\":{\"type\":\"object\",\"properties\":{\"n\":"   \
    "{\"type\":\"string\"}}},\"annotations\":{\"readOnlyHint\":" hint "}}"

static const char tools[] = "{\"tools\":[" TOOL("read_value", "true") "," TOOL("write_value", "false") "]}";
static const char value[] = "{\"content\":[{\"type\":\"text\",\"text\":\"value\"}]}";

/* The text of the member "id", or NULL for a notification. Ids are numbers or short strings without escapes. */
static const char *find_id(const char *message, size_t n, size_t *length)
{
    const char *at = memmem(message, n, "\"id\":", 5);
    if (!at)
        return NULL;
    at += 5;
    const char *end = at;
    while (*end != ',' && *end != '}')
        end++;
    *length = (size_t)(end - at);
    return at;
}

static bool has(const char *message, size_t n, const char *text)
{
    return memmem(message, n, text, strlen(text)) != NULL;
}

/* Writes the answer to one message; 0 when there is none to give. */
static size_t answer(const char *message, size_t n, char *out, size_t size)
{
    size_t length;
    const char *id = find_id(message, n, &length);
    if (!id)
        return 0;
    const char *result = "{}";
    char initialize[256];
    if (has(message, n, "\"tools/call\"")) {
        result = value;
    } else if (has(message, n, "\"tools/list\"")) {
        result = tools;
    } else if (has(message, n, "\"initialize\"")) {
        snprintf(initialize, sizeof initialize,
                 "{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{\"tools\":{}},\"serverInfo\":{\"name\":"
                 "\"bench\",\"version\":\"1\"}}");
        result = initialize;
    } else if (!has(message, n, "\"ping\"")) {
        return (size_t)snprintf(out, size,
                                "{\"jsonrpc\":\"2.0\",\"id\":%.*s,\"error\":{\"code\":-32601,\"message\":\"Method not "
                                "found\"}}",
                                (int)length, id);
    }
    return (size_t)snprintf(out, size, "{\"jsonrpc\":\"2.0\",\"id\":%.*s,\"result\":%s}", (int)length, id, result);
}

static void write_all(int fd, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t done = write(fd, bytes, n);
        if (done <= 0)
            return; /* the peer is gone; reading will tell */
        bytes += done;
        n -= (size_t)done;
    }
}

/* ---- stdio ---- */

static int serve_stdio(void)
{
    char *in = malloc(BUFFER_BYTES), *out = malloc(BUFFER_BYTES);
    size_t n = 0;
    while (in && out) {
        ssize_t got = read(STDIN_FILENO, in + n, BUFFER_BYTES - n);
        if (got <= 0)
            break;
        n += (size_t)got;
        size_t begin = 0, filled = 0;
        for (char *end; (end = memchr(in + begin, '\n', n - begin)); begin = (size_t)(end - in) + 1) {
            filled += answer(in + begin, (size_t)(end - in) - begin, out + filled, BUFFER_BYTES - filled - 1);
            if (filled > 0 && out[filled - 1] != '\n')
                out[filled++] = '\n';
            if (filled > BUFFER_BYTES / 2) {
                write_all(STDOUT_FILENO, out, filled);
                filled = 0;
            }
        }
        write_all(STDOUT_FILENO, out, filled);
        memmove(in, in + begin, n - begin);
        n -= begin;
    }
    free(in);
    free(out);
    return 0;
}

/* ---- HTTP ---- */

struct connection {
    char *in;
    size_t n;
};

/* Answers every whole request in the buffer. */
static void serve_requests(int fd, struct connection *connection)
{
    char body[4096], out[8192];
    char *head_end;
    while ((head_end = memmem(connection->in, connection->n, "\r\n\r\n", 4))) {
        size_t head = (size_t)(head_end - connection->in) + 4, size = 0;
        *head_end = '\0';
        const char *length = strcasestr(connection->in, "\r\ncontent-length:");
        if (length)
            size = strtoul(length + 17, NULL, 10);
        *head_end = '\r';
        if (connection->n < head + size)
            return;
        bool post = memcmp(connection->in, "POST", 4) == 0;
        size_t n = post ? answer(connection->in + head, size, body, sizeof body) : 0;
        int done;
        if (n > 0)
            done = snprintf(out, sizeof out,
                            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%.*s", n,
                            (int)n, body);
        else
            done = snprintf(out, sizeof out, "HTTP/1.1 %s\r\nContent-Length: 0\r\n\r\n",
                            post ? "202 Accepted" : "405 Method Not Allowed");
        write_all(fd, out, (size_t)done);
        connection->n -= head + size;
        memmove(connection->in, connection->in + head + size, connection->n);
    }
}

static int serve_http(unsigned port)
{
    static struct pollfd fds[CONNECTIONS_MAX];
    static struct connection connections[CONNECTIONS_MAX];
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    socklen_t size = sizeof at;
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    inet_pton(AF_INET, "127.0.0.1", &at.sin_addr);
    if (bind(listener, (struct sockaddr *)&at, sizeof at) != 0 || listen(listener, 512) != 0 ||
        getsockname(listener, (struct sockaddr *)&at, &size) != 0) {
        perror("mcp_server");
        return 1;
    }
    printf("{\"port\":%u}\n", ntohs(at.sin_port));
    fflush(stdout);
    fds[0] = (struct pollfd){listener, POLLIN, 0};
    nfds_t count = 1;
    while (poll(fds, count, -1) > 0) {
        for (nfds_t i = count; i-- > 1;) {
            if (!fds[i].revents)
                continue;
            ssize_t got = read(fds[i].fd, connections[i].in + connections[i].n, BUFFER_BYTES - connections[i].n);
            if (got > 0) {
                connections[i].n += (size_t)got;
                serve_requests(fds[i].fd, &connections[i]);
                continue;
            }
            close(fds[i].fd);
            free(connections[i].in);
            fds[i] = fds[--count];
            connections[i] = connections[count];
        }
        if ((fds[0].revents & POLLIN) && count < CONNECTIONS_MAX) {
            int fd = accept(listener, NULL, NULL);
            if (fd < 0)
                continue;
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
            connections[count] = (struct connection){.in = malloc(BUFFER_BYTES)};
            fds[count++] = (struct pollfd){fd, POLLIN, 0};
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    return argc > 1 ? serve_http((unsigned)strtoul(argv[1], NULL, 10)) : serve_stdio();
}
