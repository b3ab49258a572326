#include "daemon/tool_lists.h"

#include "base/digest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define FILE_BYTES_MAX ((size_t)256 * 1024 * 1024)

static const struct json_limits file_limits = {
    .bytes_max = FILE_BYTES_MAX, .depth_max = 128, .values_max = (size_t)8 * 1000 * 1000};

/* Of everything that makes it another server; what is imported is the file's own affair. */
static struct str section_digest(struct arena *arena, const struct json *mcp)
{
    struct json *section = json_object(arena);
    struct buf canonical;
    char *hex = arena_alloc(arena, 2 * DIGEST_BYTES + 1);
    for (uint32_t i = 0; i < mcp->count; i++)
        if (!str_is(mcp->members[i].name, "import"))
            json_set(arena, section, mcp->members[i].name, mcp->members[i].value);
    buf_init(&canonical, 0);
    json_canonical(&canonical, section);
    struct digest digest = digest_sha256(buf_str(&canonical));
    digest_hex(&digest, DIGEST_BYTES, hex);
    buf_release(&canonical);
    return str_of(hex);
}

static const struct json *tools_of(const struct json *lists, struct str server)
{
    const struct json *entry = lists ? json_get_str(lists, server) : NULL;
    const struct json *tools = entry ? json_get(entry, "tools") : NULL;
    return tools && tools->type == JSON_ARRAY ? tools : NULL;
}

const struct json *tool_lists_merge(struct arena *arena, const struct json *providers, const struct json *listed,
                                    const struct json *kept)
{
    struct json *lists = json_object(arena);
    for (uint32_t i = 0; providers && providers->type == JSON_OBJECT && i < providers->count; i++) {
        struct str name = providers->members[i].name;
        const struct json *mcp = json_get(&providers->members[i].value, "mcp");
        if (!mcp || mcp->type != JSON_OBJECT)
            continue;
        struct str section = section_digest(arena, mcp);
        const struct json *tools = tools_of(listed, name);
        struct str kept_section = kept ? json_get_text(json_get_str(kept, name), "section") : STR_NONE;
        if (!tools && kept_section.p && str_equal(kept_section, section))
            tools = tools_of(kept, name);
        if (!tools)
            continue;
        struct json *entry = json_object(arena);
        json_set(arena, entry, STR("section"), json_string(section));
        json_set(arena, entry, STR("tools"), *tools);
        json_set(arena, lists, name, *entry);
    }
    return lists;
}

const struct json *tool_lists_read(struct arena *arena, const char *path)
{
    FILE *file = fopen(path, "rbe");
    struct buf text;
    struct json *lists = NULL;
    struct err err = {0};
    char chunk[16384];
    if (!file)
        return NULL;
    buf_init(&text, FILE_BYTES_MAX);
    for (size_t n; (n = fread(chunk, 1, sizeof chunk, file)) > 0 && !text.over;)
        buf_add(&text, chunk, n);
    if (ferror(file) || text.over || json_parse(arena, buf_str(&text), &file_limits, &lists, &err) ||
        lists->type != JSON_OBJECT)
        lists = NULL;
    buf_release(&text);
    fclose(file);
    return lists;
}

static bool write_all(int fd, struct str text)
{
    while (text.n > 0) {
        ssize_t n = write(fd, text.p, text.n);
        if (n < 0 && errno != EINTR)
            return false;
        if (n > 0)
            text = (struct str){text.p + n, text.n - (size_t)n};
    }
    return true;
}

enum err_code tool_lists_write(const char *path, const struct json *lists, struct err *err)
{
    struct arena arena;
    struct buf text;
    arena_init(&arena);
    buf_init(&text, 0);
    const char *draft = arena_printf(&arena, "%s.new", path);
    json_write(&text, lists);
    int fd = open(draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bool written = fd >= 0 && write_all(fd, buf_str(&text));
    if (fd >= 0)
        written = close(fd) == 0 && written;
    if (written)
        written = rename(draft, path) == 0;
    enum err_code code = written ? ERR_NONE : err_set(err, ERR_IO, "%s cannot be written: %s", path, strerror(errno));
    if (!written && fd >= 0)
        unlink(draft);
    buf_release(&text);
    arena_release(&arena);
    return code;
}
