/* Load generator of the benchmark: HTTP/1.1 keep-alive over N connections from one thread, epoll, no dependency but
 * libc. Each connection has one request on the wire at a time. Prints one JSON object. Request texts may contain {n}
 * (number of the request, or of the key with --keys) and {run} (--run text), so that keys are unique or repeat as
 * wanted.
 *
 *   load --port 8080 --connections 64 --seconds 5 --method POST --path /v1/refunds --body '{"reference":"r{n}"}' */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CONNECTIONS_MAX 4096
#define HEADERS_MAX     16
#define ANSWER_MAX      (256 * 1024)
#define REQUEST_MAX     (64 * 1024)

/* Latencies in buckets of 1/32 of their power of two: at most 3 % off. */
#define BUCKETS (64 * 32)

struct options {
    const char *host, *method, *path, *body, *run;
    const char *headers[HEADERS_MAX];
    unsigned header_count, port, connections;
    uint64_t requests;      /* stop after this many; 0 = by time */
    uint64_t first, keys;   /* {n} starts at first; with keys it runs in [first, first + keys) and around */
    double seconds, warm_s; /* measured time; time before it */
};

struct connection {
    int fd;
    uint64_t sent_ns;
    size_t out_size, out_sent;
    size_t in_size;
    size_t head_size;   /* 0 = header not complete */
    size_t answer_size; /* whole answer; known with head_size */
    int status;
    bool close_after;
    char *out, *in;
};

struct load {
    struct options options;
    struct sockaddr_in address;
    int epoll_fd;
    struct connection *connections;
    uint64_t started, finished; /* requests */
    uint64_t measured, measure_from_ns, measure_to_ns;
    uint64_t errors, reconnects;
    uint64_t by_status[6]; /* 1xx … 5xx; 0 = unreadable */
    uint64_t buckets[BUCKETS];
    uint64_t max_ns, sum_ns;
    bool measuring, stopping;
    char *example; /* first answer that was not 2xx */
};

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

static void fail(const char *what)
{
    fprintf(stderr, "load: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* ---- latencies ---- */

static unsigned bucket_of(uint64_t ns)
{
    if (ns < 32)
        return (unsigned)ns;
    unsigned log = 63 - (unsigned)__builtin_clzll(ns);
    return (log - 4) * 32 + (unsigned)((ns >> (log - 5)) & 31);
}

static uint64_t bucket_ns(unsigned bucket)
{
    if (bucket < 32)
        return bucket;
    unsigned log = bucket / 32 + 4;
    return (1ULL << log) + ((uint64_t)(bucket % 32) << (log - 5));
}

static double percentile_us(const struct load *load, double share)
{
    uint64_t wanted = (uint64_t)((double)load->measured * share), seen = 0;
    for (unsigned i = 0; i < BUCKETS; i++) {
        seen += load->buckets[i];
        if (seen > wanted)
            return (double)bucket_ns(i) / 1000;
    }
    return (double)load->max_ns / 1000;
}

/* ---- requests ---- */

static size_t fill(char *out, size_t room, const char *text, uint64_t n, const char *run)
{
    size_t size = 0;
    while (*text && size + 24 < room) {
        if (strncmp(text, "{n}", 3) == 0) {
            size += (size_t)snprintf(out + size, room - size, "%llu", (unsigned long long)n);
            text += 3;
        } else if (strncmp(text, "{run}", 5) == 0) {
            size += (size_t)snprintf(out + size, room - size, "%s", run);
            text += 5;
        } else {
            out[size++] = *text++;
        }
    }
    out[size] = 0;
    return size;
}

static void compose(struct load *load, struct connection *connection)
{
    static char body[REQUEST_MAX / 2], path[4096], header[4096];
    const struct options *options = &load->options;
    uint64_t n = options->first + (options->keys ? load->started % options->keys : load->started);
    size_t body_size = options->body ? fill(body, sizeof body, options->body, n, options->run) : 0;
    fill(path, sizeof path, options->path, n, options->run);
    size_t size = (size_t)snprintf(connection->out, REQUEST_MAX, "%s %s HTTP/1.1\r\nHost: %s:%u\r\n", options->method,
                                   path, options->host, options->port);
    for (unsigned i = 0; i < options->header_count; i++) {
        fill(header, sizeof header, options->headers[i], n, options->run);
        size += (size_t)snprintf(connection->out + size, REQUEST_MAX - size, "%s\r\n", header);
    }
    if (options->body)
        size += (size_t)snprintf(connection->out + size, REQUEST_MAX - size,
                                 "Content-Type: application/json\r\nContent-Length: %zu\r\n", body_size);
    size += (size_t)snprintf(connection->out + size, REQUEST_MAX - size, "\r\n");
    memcpy(connection->out + size, body, body_size);
    connection->out_size = size + body_size;
}

static void watch(struct load *load, struct connection *connection, int operation, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = connection};
    if (epoll_ctl(load->epoll_fd, operation, connection->fd, &event))
        fail("epoll_ctl");
}

static void send_out(struct load *load, struct connection *connection)
{
    ssize_t sent = send(connection->fd, connection->out + connection->out_sent,
                        connection->out_size - connection->out_sent, MSG_NOSIGNAL);
    if (sent > 0)
        connection->out_sent += (size_t)sent;
    if (connection->out_sent < connection->out_size)
        watch(load, connection, EPOLL_CTL_MOD, EPOLLIN | EPOLLOUT);
}

static void start_request(struct load *load, struct connection *connection)
{
    if (load->options.requests && load->started >= load->options.requests)
        return;
    compose(load, connection);
    load->started++;
    connection->out_sent = 0;
    connection->in_size = 0;
    connection->head_size = 0;
    connection->sent_ns = now_ns();
    send_out(load, connection);
}

static void open_connection(struct load *load, struct connection *connection)
{
    int on = 1;
    connection->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connection->fd < 0)
        fail("socket");
    if (connect(connection->fd, (struct sockaddr *)&load->address, sizeof load->address))
        fail("connect");
    setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    watch(load, connection, EPOLL_CTL_ADD, EPOLLIN);
}

static void reopen(struct load *load, struct connection *connection)
{
    close(connection->fd);
    load->reconnects++;
    open_connection(load, connection);
}

/* ---- answers ---- */

static const char *find_header(const char *head, const char *name)
{
    size_t n = strlen(name);
    for (const char *line = strstr(head, "\r\n"); line; line = strstr(line, "\r\n")) {
        line += 2;
        if (strncasecmp(line, name, n) == 0 && line[n] == ':')
            return line + n + 1;
    }
    return NULL;
}

/* Only answers with a length; that is what all servers under test send. */
static void read_head(struct connection *connection)
{
    connection->in[connection->in_size] = 0;
    char *end = strstr(connection->in, "\r\n\r\n");
    if (!end)
        return;
    end[2] = 0;
    const char *length = find_header(connection->in, "Content-Length");
    const char *closing = find_header(connection->in, "Connection");
    connection->status = connection->in_size > 12 ? atoi(connection->in + 9) : 0;
    connection->head_size = (size_t)(end - connection->in) + 4;
    connection->answer_size = connection->head_size + (length ? strtoul(length, NULL, 10) : 0);
    connection->close_after = closing && strncasecmp(closing + strspn(closing, " "), "close", 5) == 0;
    end[2] = '\r';
}

static void keep_example(struct load *load, const struct connection *connection)
{
    if (!load->example)
        load->example = strndup(
            connection->in + connection->head_size,
            connection->in_size - connection->head_size < 300 ? connection->in_size - connection->head_size : 300);
}

static void finish_request(struct load *load, struct connection *connection)
{
    uint64_t now = now_ns(), took = now - connection->sent_ns;
    load->finished++;
    if (load->measuring) {
        load->measured++;
        load->buckets[bucket_of(took)]++;
        load->sum_ns += took;
        if (took > load->max_ns)
            load->max_ns = took;
        load->measure_to_ns = now;
    }
    int class = connection->status / 100;
    load->by_status[class >= 1 && class <= 5 ? class : 0]++;
    if (class != 2)
        keep_example(load, connection);
    if (connection->close_after)
        reopen(load, connection);
    if (!load->stopping)
        start_request(load, connection);
}

static void receive(struct load *load, struct connection *connection)
{
    ssize_t n = recv(connection->fd, connection->in + connection->in_size, ANSWER_MAX - connection->in_size, 0);
    if (n <= 0 || connection->in_size + (size_t)n >= ANSWER_MAX) {
        load->errors++;
        load->finished++;
        reopen(load, connection);
        if (!load->stopping)
            start_request(load, connection);
        return;
    }
    connection->in_size += (size_t)n;
    if (!connection->head_size)
        read_head(connection);
    if (connection->head_size && connection->in_size >= connection->answer_size)
        finish_request(load, connection);
}

static void serve_event(struct load *load, const struct epoll_event *event)
{
    struct connection *connection = event->data.ptr;
    if (event->events & EPOLLOUT) {
        watch(load, connection, EPOLL_CTL_MOD, EPOLLIN);
        send_out(load, connection);
    }
    if (event->events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        receive(load, connection);
}

static void run(struct load *load)
{
    struct epoll_event events[256];
    uint64_t start = now_ns();
    uint64_t warm_until = start + (uint64_t)(load->options.warm_s * 1e9);
    uint64_t until = warm_until + (uint64_t)(load->options.seconds * 1e9);
    load->measure_from_ns = warm_until;
    load->measuring = load->options.warm_s <= 0;
    for (unsigned i = 0; i < load->options.connections; i++) {
        open_connection(load, &load->connections[i]);
        start_request(load, &load->connections[i]);
    }
    for (;;) {
        int count = epoll_wait(load->epoll_fd, events, 256, 50);
        for (int i = 0; i < count; i++)
            serve_event(load, &events[i]);
        uint64_t now = now_ns();
        if (!load->measuring && now >= warm_until) {
            load->measuring = true;
            load->measure_from_ns = now;
        }
        if (load->options.requests ? load->finished >= load->options.requests : now >= until)
            load->stopping = true;
        /* With a number of requests, or after the time, wait for what is on the wire: every call gets its answer. */
        if (load->stopping && (load->finished >= load->started || now >= until + 30000000000U))
            return;
    }
}

/* ---- options and report ---- */

static void report(const struct load *load)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    double seconds = (double)(load->measure_to_ns - load->measure_from_ns) / 1e9;
    double cpu = (double)usage.ru_utime.tv_sec + (double)usage.ru_stime.tv_sec +
                 (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
    double n = load->measured ? (double)load->measured : 1;
    printf("{\"requests\":%llu,\"seconds\":%.3f,\"per_second\":%.1f,\"p50_us\":%.1f,\"p90_us\":%.1f,\"p99_us\":%.1f,"
           "\"p999_us\":%.1f,\"max_us\":%.1f,\"mean_us\":%.1f,",
           (unsigned long long)load->measured, seconds, seconds > 0 ? (double)load->measured / seconds : 0,
           percentile_us(load, 0.5), percentile_us(load, 0.9), percentile_us(load, 0.99), percentile_us(load, 0.999),
           (double)load->max_ns / 1000, (double)load->sum_ns / n / 1000);
    printf("\"sent\":%llu,\"finished\":%llu,\"status\":{\"2xx\":%llu,\"3xx\":%llu,\"4xx\":%llu,\"5xx\":%llu,\"other\":%"
           "llu},"
           "\"errors\":%llu,\"reconnects\":%llu,\"client_cpu_us\":%.2f}\n",
           (unsigned long long)load->started, (unsigned long long)load->finished,
           (unsigned long long)load->by_status[2], (unsigned long long)load->by_status[3],
           (unsigned long long)load->by_status[4], (unsigned long long)load->by_status[5],
           (unsigned long long)(load->by_status[0] + load->by_status[1]), (unsigned long long)load->errors,
           (unsigned long long)load->reconnects, cpu * 1e6 / (load->finished ? (double)load->finished : 1));
    if (load->example)
        fprintf(stderr, "load: first answer that was not 2xx: %s\n", load->example);
}

static const char help[] =
    "load --port N [--host 127.0.0.1] [--connections N] [--seconds S] [--warm S] [--requests N]\n"
    "     [--method POST] [--path /] [--header 'Name: value']... [--body TEXT] [--first N] [--keys N] [--run TEXT]\n"
    "{n} in path, headers and body is the number of the request (with --keys: of the key), {run} the --run text.\n";

static void read_options(int argc, char **argv, struct options *options)
{
    static const struct option longs[] = {
        {"port", 1, NULL, 'p'},   {"host", 1, NULL, 'h'},     {"connections", 1, NULL, 'c'}, {"seconds", 1, NULL, 's'},
        {"warm", 1, NULL, 'w'},   {"requests", 1, NULL, 'n'}, {"method", 1, NULL, 'm'},      {"path", 1, NULL, 'u'},
        {"header", 1, NULL, 'H'}, {"body", 1, NULL, 'b'},     {"first", 1, NULL, 'f'},       {"keys", 1, NULL, 'k'},
        {"run", 1, NULL, 'r'},    {NULL, 0, NULL, 0},
    };
    *options = (struct options){
        .host = "127.0.0.1", .method = "GET", .path = "/", .run = "", .connections = 1, .seconds = 3, .warm_s = 0};
    int option;
    while ((option = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        switch (option) {
        case 'p': options->port = (unsigned)atoi(optarg); break;
        case 'h': options->host = optarg; break;
        case 'c': options->connections = (unsigned)atoi(optarg); break;
        case 's': options->seconds = atof(optarg); break;
        case 'w': options->warm_s = atof(optarg); break;
        case 'n': options->requests = strtoull(optarg, NULL, 10); break;
        case 'm': options->method = optarg; break;
        case 'u': options->path = optarg; break;
        case 'b': options->body = optarg; break;
        case 'f': options->first = strtoull(optarg, NULL, 10); break;
        case 'k': options->keys = strtoull(optarg, NULL, 10); break;
        case 'r': options->run = optarg; break;
        case 'H':
            if (options->header_count == HEADERS_MAX) {
                fprintf(stderr, "load: more than %d headers\n", HEADERS_MAX);
                exit(2);
            }
            options->headers[options->header_count++] = optarg;
            break;
        default: fputs(help, stderr); exit(2);
        }
    }
    if (!options->port || !options->connections || options->connections > CONNECTIONS_MAX || optind < argc) {
        fputs(help, stderr);
        exit(2);
    }
}

int main(int argc, char **argv)
{
    static struct load load;
    read_options(argc, argv, &load.options);
    load.address = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)load.options.port)};
    if (inet_pton(AF_INET, load.options.host, &load.address.sin_addr) != 1) {
        fprintf(stderr, "load: --host: not an IPv4 address\n");
        return 2;
    }
    load.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    load.connections = calloc(load.options.connections, sizeof *load.connections);
    for (unsigned i = 0; i < load.options.connections; i++) {
        load.connections[i].out = malloc(REQUEST_MAX);
        load.connections[i].in = malloc(ANSWER_MAX + 1);
    }
    run(&load);
    report(&load);
    return load.measured == 0 || load.errors > 0;
}
