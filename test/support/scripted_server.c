/* An MCP server over stdio that does as it is told: how it behaves in the handshake says its command line, what a call
 * does says the tool that is called. For tests of the client side. */
#include "base/jsonrpc.h"
#include "base/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LATER_MAX    1024
#define VERSION      "2026-07-28"
#define VERSION_NAME "io.modelcontextprotocol/protocolVersion"

enum probe { PROBE_ANSWER, PROBE_ERROR, PROBE_IGNORE, PROBE_EXIT, PROBE_ERROR_EXIT, PROBE_VERSION, PROBE_EMPTY };

struct later {
    int64_t at_ms;
    char *text;
};

/* What is told on the command line, and the state of the process. */
struct script {
    bool legacy, modern;
    enum probe probe;
    const char *version;                    /* that initialize is answered with */
    long start_ms;                          /* sleeps so long first */
    long tools, page;                       /* further tools, and how many at once (0 = all) */
    bool ignores_end, ignores_term, silent; /* silent: initialize is never answered */
    const char *record;                     /* file that every message is appended to */
    const char *stderr_text;
    struct later later[LATER_MAX];
    size_t later_count;
    uint64_t last_question;
    char *call_id;   /* of the call that waits for the answer to a question */
    char *listen_id; /* of subscriptions/listen */
};

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void say(const char *text)
{
    size_t n = strlen(text);
    while (n > 0) {
        ssize_t written = write(1, text, n);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            exit(0);
        text += written;
        n -= (size_t)written;
    }
}

static void say_buf(struct buf *text)
{
    buf_add_char(text, '\n');
    say(text->p);
    buf_release(text);
}

static void answer(struct str id, const char *result)
{
    struct buf text;
    buf_init(&text, 0);
    rpc_write_result(&text, id, str_of(result));
    say_buf(&text);
}

static void refuse(struct str id, int64_t code, const char *message, const char *data)
{
    struct buf text;
    buf_init(&text, 0);
    rpc_write_error(&text, id, code, str_of(message), data ? str_of(data) : STR_NONE);
    say_buf(&text);
}

static void notify(const char *method, const char *params)
{
    struct buf text;
    buf_init(&text, 0);
    rpc_write_notification(&text, method, str_of(params));
    say_buf(&text);
}

/* {"content": [{"type": "text", "text": …}]} */
static char *text_result(struct str text)
{
    struct buf out;
    struct json_out json;
    buf_init(&out, 0);
    json_out_init(&json, &out);
    json_out_object(&json);
    json_out_member_text(&json, "resultType", "complete");
    json_out_name(&json, "content");
    json_out_array(&json);
    json_out_object(&json);
    json_out_member_text(&json, "type", "text");
    json_out_name(&json, "text");
    json_out_str(&json, text);
    json_out_end_object(&json);
    json_out_end_array(&json);
    json_out_end_object(&json);
    return buf_detach(&out, NULL);
}

static void answer_text(struct str id, struct str text)
{
    char *result = text_result(text);
    answer(id, result);
    free(result);
}

static void answer_value(struct str id, const struct json *value)
{
    struct buf text;
    buf_init(&text, 0);
    if (value)
        json_write(&text, value);
    answer_text(id, buf_str(&text));
    buf_release(&text);
}

static void answer_later(struct script *script, struct str id, long delay_ms)
{
    struct buf text;
    char *result = text_result(STR("late"));
    if (script->later_count == LATER_MAX)
        exit(9);
    buf_init(&text, 0);
    rpc_write_result(&text, id, str_of(result));
    buf_add_char(&text, '\n');
    script->later[script->later_count++] = (struct later){now_ms() + delay_ms, buf_detach(&text, NULL)};
    free(result);
}

/* ---- tools ---- */

static void tool_echo(struct script *script, const struct rpc_message *message, const struct json *arguments)
{
    (void)script;
    (void)arguments;
    answer_value(message->id, message->params);
}

static void tool_crash(struct script *script, const struct rpc_message *message, const struct json *arguments)
{
    (void)script;
    if (json_get_bool(arguments, "answer", false))
        answer_text(message->id, STR("last words"));
    if (json_get_int(arguments, "signal", 0) != 0)
        raise((int)json_get_int(arguments, "signal", 0));
    exit((int)json_get_int(arguments, "status", 3));
}

static void tool_slow(struct script *script, const struct rpc_message *message, const struct json *arguments)
{
    answer_later(script, message->id, (long)json_get_int(arguments, "ms", 200));
}

static void tool_never(struct script *script, const struct rpc_message *message, const struct json *arguments)
{
    (void)script;
    (void)message;
    (void)arguments;
}

static void tool_garbage(struct script *script, const struct rpc_message *message, const struct json *arguments)
{
    (void)script;
    (void)arguments;
    say("Server is listening on everything\n{\"level\":30,\"msg\":\"a log line\"}\n[1,2]\n\"text\"\n{{{\n\n");
    say("{\"jsonrpc\":\"2.0\",\"id\":987654,\"result\":{}}\n");
    answer_text(message->id, STR("after garbage"));
}

static void tool_broken(struct script *script, const struct rpc_message *message, const struct json *arguments)
{
    char line[512];
    (void)script;
    (void)arguments;
    snprintf(line, sizeof line, "{\"jsonrpc\":\"2.0\",\"id\":%.*s,\"result\":{\"a\":1,\"a\":\"\\ud800\"}}\n",
             STR_ARG(message->id));
    say(line);
}

static void tool_big(struct script *script, const struct rpc_message *message, const struct json *arguments)
{
    size_t bytes = (size_t)json_get_int(arguments, "bytes", 1000000);
    struct buf text;
    (void)script;
    buf_init(&text, 0);
    for (size_t i = 0; i < bytes; i++)
        buf_add_char(&text, 'x');
    answer_text(message->id, buf_str(&text));
    buf_release(&text);
}

static void tool_progress(struct script *script, const struct rpc_message *message, const struct json *arguments)
{
    const struct json *token = json_get(json_get(message->params, "_meta"), "progressToken");
    int64_t count = json_get_int(arguments, "count", 3);
    (void)script;
    for (int64_t i = 1; i <= count && token; i++) {
        struct buf params;
        buf_init(&params, 0);
        buf_add_text(&params, "{\"progressToken\":");
        json_write(&params, token);
        buf_printf(&params, ",\"progress\":%" PRId64 ",\"total\":%" PRId64 "}", i, count);
        notify("notifications/progress", params.p);
        buf_release(&params);
        usleep((useconds_t)json_get_int(arguments, "pause_ms", 0) * 1000);
    }
    answer_text(message->id, STR("progressed"));
}

static void tool_log(struct script *script, const struct rpc_message *message, const struct json *arguments)
{
    (void)script;
    (void)arguments;
    notify("notifications/message", "{\"level\":\"info\",\"data\":\"working\"}");
    answer_text(message->id, STR("logged"));
}

static void tool_ask(struct script *script, const struct rpc_message *message, const struct json *arguments)
{
    struct buf text, params;
    char id[32];
    struct str method = json_get_text(arguments, "method");
    const struct json *given = json_get(arguments, "params");
    buf_init(&text, 0);
    buf_init(&params, 0);
    if (given)
        json_write(&params, given);
    snprintf(id, sizeof id, "\"q%" PRIu64 "\"", ++script->last_question);
    char *copy = method.p ? strndup(method.p, method.n) : strdup("sampling/createMessage");
    rpc_write_request(&text, str_of(id), copy, given ? buf_str(&params) : STR("{\"messages\":[],\"maxTokens\":5}"));
    free(copy);
    say_buf(&text);
    buf_release(&params);
    free(script->call_id);
    script->call_id = strndup(message->id.p, message->id.n);
    if (json_get_bool(arguments, "withdraw", false)) {
        char cancelled[96];
        snprintf(cancelled, sizeof cancelled, "{\"requestId\":%s,\"reason\":\"never mind\"}", id);
        notify("notifications/cancelled", cancelled);
        answer_text(message->id, STR("withdrawn"));
    }
}

static void tool_grow(struct script *script, const struct rpc_message *message, const struct json *arguments)
{
    script->tools += json_get_int(arguments, "by", 1);
    answer_text(message->id, STR("grown"));
    if (script->listen_id) {
        char params[256];
        snprintf(params, sizeof params, "{\"_meta\":{\"io.modelcontextprotocol/subscriptionId\":%s}}",
                 script->listen_id);
        notify("notifications/tools/list_changed", params);
    } else {
        notify("notifications/tools/list_changed", "{}");
    }
}

static void tool_stderr(struct script *script, const struct rpc_message *message, const struct json *arguments)
{
    struct str text = json_get_text(arguments, "text");
    int64_t count = json_get_int(arguments, "count", 1);
    (void)script;
    for (int64_t i = 0; i < count; i++)
        fprintf(stderr, "%.*s\n", STR_ARG(text));
    answer_text(message->id, STR("written"));
}

static void tool_environment(struct script *script, const struct rpc_message *message, const struct json *arguments)
{
    extern char **environ;
    struct buf text;
    char folder[4096];
    (void)script;
    (void)arguments;
    buf_init(&text, 0);
    buf_printf(&text, "cwd=%s pgid=%d sid=%d pid=%d", getcwd(folder, sizeof folder), getpgrp(), getsid(0), getpid());
    for (char **item = environ; *item; item++)
        buf_printf(&text, " %s", *item);
    for (int fd = 3; fd < 64; fd++) {
        if (fcntl(fd, F_GETFD) >= 0)
            buf_printf(&text, " open:%d", fd);
    }
    answer_text(message->id, buf_str(&text));
    buf_release(&text);
}

/* A child that lives on in the same process group. */
static void tool_child(struct script *script, const struct rpc_message *message, const struct json *arguments)
{
    char text[32];
    (void)script;
    (void)arguments;
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGTERM, SIG_IGN);
        for (;;)
            pause();
    }
    snprintf(text, sizeof text, "%d", pid);
    answer_text(message->id, str_of(text));
}

static void tool_close(struct script *script, const struct rpc_message *message, const struct json *arguments)
{
    (void)script;
    (void)message;
    (void)arguments;
    close(1);
}

static void tool_deaf(struct script *script, const struct rpc_message *message, const struct json *arguments)
{
    (void)script;
    (void)message;
    (void)arguments;
    for (;;)
        pause();
}

static void tool_twice(struct script *script, const struct rpc_message *message, const struct json *arguments)
{
    (void)script;
    (void)arguments;
    answer_text(message->id, STR("once"));
    answer_text(message->id, STR("twice"));
}

typedef void tool_fn(struct script *script, const struct rpc_message *message, const struct json *arguments);
static const struct {
    const char *name;
    tool_fn *call;
} tools[] = {
    {"echo", tool_echo},
    {"crash", tool_crash},
    {"slow", tool_slow},
    {"never", tool_never},
    {"garbage", tool_garbage},
    {"broken", tool_broken},
    {"big", tool_big},
    {"progress", tool_progress},
    {"log", tool_log},
    {"ask", tool_ask},
    {"grow", tool_grow},
    {"stderr", tool_stderr},
    {"environment", tool_environment},
    {"child", tool_child},
    {"close", tool_close},
    {"deaf", tool_deaf},
    {"twice", tool_twice},
};
#define TOOL_COUNT (sizeof tools / sizeof tools[0])

/* ---- methods ---- */

static void list_tools(const struct script *script, const struct rpc_message *message)
{
    struct str cursor = json_get_text(message->params, "cursor");
    size_t all = TOOL_COUNT + (size_t)script->tools, from = cursor.p ? strtoul(cursor.p, NULL, 10) : 0;
    size_t to = script->page > 0 && from + (size_t)script->page < all ? from + (size_t)script->page : all;
    struct buf text;
    buf_init(&text, 0);
    buf_add_text(&text, "{\"resultType\":\"complete\",\"ttlMs\":0,\"cacheScope\":\"private\",\"tools\":[");
    for (size_t i = from; i < to; i++) {
        char name[32];
        snprintf(name, sizeof name, "extra_%zu", i - TOOL_COUNT);
        buf_printf(&text, "%s{\"name\":\"%s\",\"inputSchema\":{\"type\":\"object\"}}", i > from ? "," : "",
                   i < TOOL_COUNT ? tools[i].name : name);
    }
    buf_add_text(&text, "]");
    if (to < all)
        buf_printf(&text, ",\"nextCursor\":\"%zu\"", to);
    buf_add_text(&text, "}");
    answer(message->id, text.p);
    buf_release(&text);
}

static void call_tool(struct script *script, const struct rpc_message *message)
{
    struct str name = json_get_text(message->params, "name");
    for (size_t i = 0; i < TOOL_COUNT; i++) {
        if (str_is(name, tools[i].name)) {
            tools[i].call(script, message, json_get(message->params, "arguments"));
            return;
        }
    }
    refuse(message->id, RPC_INVALID_PARAMS, "no such tool", NULL);
}

static void initialize(struct script *script, const struct rpc_message *message)
{
    struct buf text;
    struct str asked = json_get_text(message->params, "protocolVersion");
    if (!script->legacy) {
        refuse(message->id, -32022, "unsupported protocol version",
               "{\"supported\":[\"" VERSION "\"],\"requested\":\"2025-11-25\"}");
        return;
    }
    if (script->silent)
        return;
    buf_init(&text, 0);
    buf_add_text(&text, "{\"protocolVersion\":");
    json_write_string(&text, script->version ? str_of(script->version) : asked);
    buf_add_text(&text, ",\"capabilities\":{\"tools\":{\"listChanged\":true},\"resources\":{},\"logging\":{}},"
                        "\"serverInfo\":{\"name\":\"scripted\",\"version\":\"1\"},\"instructions\":\"do\"}");
    answer(message->id, text.p);
    buf_release(&text);
}

static void discover(struct script *script, const struct rpc_message *message)
{
    static const char result[] =
        "{\"resultType\":\"complete\",\"supportedVersions\":[\"" VERSION "\"],\"capabilities\":{\"tools\":{"
        "\"listChanged\":true}},\"ttlMs\":0,\"cacheScope\":\"private\",\"_meta\":{"
        "\"io.modelcontextprotocol/serverInfo\":{\"name\":\"scripted\",\"version\":\"1\"}}}";
    switch (script->probe) {
    case PROBE_ANSWER:
        if (script->modern)
            answer(message->id, result);
        else
            refuse(message->id, RPC_METHOD_NOT_FOUND, "method not found", NULL);
        break;
    case PROBE_ERROR: refuse(message->id, RPC_INVALID_PARAMS, "received request before initialization", NULL); break;
    case PROBE_ERROR_EXIT: refuse(message->id, RPC_INVALID_REQUEST, "not initialized", NULL); exit(1);
    case PROBE_EXIT: exit(1);
    case PROBE_IGNORE: break;
    case PROBE_VERSION: /* refused once, with the very version in its list */
        script->probe = PROBE_ANSWER;
        refuse(message->id, -32022, "unsupported protocol version", "{\"supported\":[\"" VERSION "\"]}");
        break;
    case PROBE_EMPTY: answer(message->id, "{}"); break;
    }
}

static void subscribe(struct script *script, const struct rpc_message *message)
{
    char params[512];
    free(script->listen_id);
    script->listen_id = strndup(message->id.p, message->id.n);
    snprintf(
        params, sizeof params,
        "{\"_meta\":{\"io.modelcontextprotocol/subscriptionId\":%s},\"notifications\":{\"toolsListChanged\":true}}",
        script->listen_id);
    notify("notifications/subscriptions/acknowledged", params);
}

static void take_request(struct script *script, const struct rpc_message *message)
{
    const char *method = message->method;
    bool modern = json_get(json_get(message->params, "_meta"), VERSION_NAME) != NULL;
    if (strcmp(method, "initialize") == 0)
        initialize(script, message);
    else if (strcmp(method, "server/discover") == 0)
        discover(script, message);
    else if (modern && !script->modern)
        refuse(message->id, -32022, "unsupported protocol version", "{\"supported\":[\"2025-11-25\"]}");
    else if (strcmp(method, "tools/list") == 0)
        list_tools(script, message);
    else if (strcmp(method, "tools/call") == 0)
        call_tool(script, message);
    else if (strcmp(method, "subscriptions/listen") == 0 && script->modern)
        subscribe(script, message);
    else if (strcmp(method, "ping") == 0)
        answer(message->id, "{}");
    else
        refuse(message->id, RPC_METHOD_NOT_FOUND, "method not found", NULL);
}

/* The answer to a question is the answer to the call that asked. */
static void take_answer(struct script *script, const struct rpc_message *message)
{
    if (!script->call_id)
        return;
    if (message->kind == RPC_RESULT) {
        answer_value(str_of(script->call_id), message->result);
    } else {
        char text[64];
        snprintf(text, sizeof text, "refused %" PRId64, message->code);
        answer_text(str_of(script->call_id), str_of(text));
    }
    free(script->call_id);
    script->call_id = NULL;
}

static void record(const struct script *script, struct str line)
{
    if (!script->record)
        return;
    FILE *file = fopen(script->record, "a");
    if (!file)
        exit(8);
    fprintf(file, "%.*s\n", STR_ARG(line));
    fclose(file);
}

static void on_line(void *user, struct str line, bool over)
{
    struct script *script = user;
    struct rpc_message message;
    struct rpc_fault fault;
    struct arena arena;
    struct json_limits limits = json_limits_default;
    limits.bytes_max = (size_t)64 << 20;
    arena_init(&arena);
    record(script, line);
    if (over || !rpc_read(&arena, line, &limits, &message, &fault))
        fprintf(stderr, "scripted server: not a message\n");
    else if (message.kind == RPC_REQUEST)
        take_request(script, &message);
    else if (message.kind != RPC_NOTIFICATION)
        take_answer(script, &message);
    arena_release(&arena);
}

/* ---- the loop ---- */

static int say_due(struct script *script)
{
    int wait_ms = -1;
    int64_t now = now_ms();
    for (size_t i = 0; i < script->later_count;) {
        struct later *later = &script->later[i];
        if (later->at_ms > now) {
            int left = (int)(later->at_ms - now);
            wait_ms = wait_ms < 0 || left < wait_ms ? left : wait_ms;
            i++;
            continue;
        }
        say(later->text);
        free(later->text);
        *later = script->later[--script->later_count];
    }
    return wait_ms;
}

static void serve(struct script *script)
{
    struct lines lines;
    char bytes[65536];
    lines_init(&lines, (size_t)64 << 20, on_line, script);
    for (;;) {
        struct pollfd in = {.fd = 0, .events = POLLIN};
        int ready = poll(&in, 1, say_due(script));
        if (ready <= 0)
            continue;
        ssize_t n = read(0, bytes, sizeof bytes);
        if (n <= 0)
            break;
        lines_feed(&lines, bytes, (size_t)n);
    }
    lines_release(&lines);
    while (script->ignores_end)
        pause();
}

static enum probe probe_of(const char *text)
{
    static const char *const names[] = {"answer", "error", "ignore", "exit", "error_exit", "version", "empty"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(text, names[i]) == 0)
            return (enum probe)i;
    }
    exit(7);
}

static void read_option(struct script *script, const char *name, const char *value)
{
    if (strcmp(name, "--era") == 0) {
        script->legacy = strcmp(value, "modern") != 0;
        script->modern = strcmp(value, "legacy") != 0;
    } else if (strcmp(name, "--probe") == 0) {
        script->probe = probe_of(value);
    } else if (strcmp(name, "--version") == 0) {
        script->version = value;
    } else if (strcmp(name, "--start-ms") == 0) {
        script->start_ms = atol(value);
    } else if (strcmp(name, "--tools") == 0) {
        script->tools = atol(value);
    } else if (strcmp(name, "--page") == 0) {
        script->page = atol(value);
    } else if (strcmp(name, "--record") == 0) {
        script->record = value;
    } else if (strcmp(name, "--stderr") == 0) {
        script->stderr_text = value;
    } else if (strcmp(name, "--exit") == 0) {
        exit(atoi(value));
    } else if (strcmp(name, "--silent") == 0) {
        script->silent = true;
    } else if (strcmp(name, "--stubborn") == 0) {
        script->ignores_end = script->ignores_term = true;
    } else {
        exit(7);
    }
}

int main(int argc, char **argv)
{
    static struct script script = {.legacy = true, .modern = false};
    for (int i = 1; i + 1 < argc; i += 2)
        read_option(&script, argv[i], argv[i + 1]);
    if (script.ignores_term)
        signal(SIGTERM, SIG_IGN);
    if (script.stderr_text)
        fprintf(stderr, "%s\n", script.stderr_text);
    usleep((useconds_t)script.start_ms * 1000);
    serve(&script);
    for (size_t i = 0; i < script.later_count; i++)
        free(script.later[i].text);
    free(script.call_id);
    free(script.listen_id);
    return 0;
}
