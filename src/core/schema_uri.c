#include "core/schema_uri.h"

#include "base/buf.h"
#include "base/digits.h"

#include <ctype.h>
#include <stdlib.h>

struct parts {
    struct str scheme;    /* without ":"; absent when none */
    struct str authority; /* without "//"; absent when none */
    struct str path;      /* never absent */
    struct str query;     /* without "?"; absent when none */
    struct str fragment;  /* without "#"; absent when none */
};

static struct str cut(struct str s, size_t from, size_t to)
{
    return (struct str){s.p + from, to - from};
}

/* Position of the first of any in s at or behind from; s.n when there is none. */
static size_t find(struct str s, size_t from, const char *any)
{
    while (from < s.n && (!s.p[from] || !strchr(any, s.p[from])))
        from++;
    return from;
}

static size_t scheme_length(struct str s)
{
    size_t at = 0;
    if (!s.n || !isalpha((unsigned char)s.p[0]))
        return 0;
    while (at < s.n && (isalnum((unsigned char)s.p[at]) || (s.p[at] && strchr("+-.", s.p[at]))))
        at++;
    return at < s.n && s.p[at] == ':' ? at : 0;
}

static struct parts split(struct str s)
{
    struct parts parts = {0};
    if (!s.p)
        s = STR("");
    size_t at = find(s, 0, "#");
    if (at < s.n)
        parts.fragment = cut(s, at + 1, s.n);
    s.n = at;
    at = find(s, 0, "?");
    if (at < s.n)
        parts.query = cut(s, at + 1, s.n);
    s.n = at;
    size_t scheme = scheme_length(s);
    at = 0;
    if (scheme) {
        parts.scheme = cut(s, 0, scheme);
        at = scheme + 1;
    }
    if (s.n - at >= 2 && s.p[at] == '/' && s.p[at + 1] == '/') {
        size_t end = find(s, at + 2, "/");
        parts.authority = cut(s, at + 2, end);
        at = end;
    }
    parts.path = cut(s, at, s.n);
    return parts;
}

/* RFC 3986, 5.2.4, for paths that may be relative: "." and ".." segments are taken out. */
static struct str remove_dots(struct arena *arena, struct str path)
{
    char *out = arena_alloc(arena, path.n + 1);
    size_t n = 0, at = 0;
    while (at < path.n) {
        size_t end = find(path, at, "/");
        struct str segment = cut(path, at, end);
        bool last = end == path.n;
        if (str_is(segment, "..")) {
            if (n && out[n - 1] == '/')
                n--;
            while (n && out[n - 1] != '/')
                n--;
            if (!n && path.p[0] == '/')
                out[n++] = '/';
        } else if (!str_is(segment, ".")) {
            memcpy(out + n, segment.p, segment.n);
            n += segment.n;
            if (!last)
                out[n++] = '/';
        }
        at = end + 1;
    }
    out[n] = '\0';
    return (struct str){out, n};
}

static struct str merge(struct arena *arena, const struct parts *base, struct str path)
{
    struct buf buf;
    buf_init(&buf, 0);
    size_t keep = base->path.n;
    while (keep && base->path.p[keep - 1] != '/')
        keep--;
    if (base->authority.p && !base->path.n)
        buf_add_char(&buf, '/');
    buf_add(&buf, base->path.p, keep);
    buf_add_str(&buf, path);
    struct str merged = arena_str(arena, buf_str(&buf));
    buf_release(&buf);
    return merged;
}

static struct str percent_decode(struct arena *arena, struct str s)
{
    char *out = arena_alloc(arena, s.n + 1);
    size_t n = 0;
    for (size_t at = 0; at < s.n; at++) {
        int high = s.p[at] == '%' && at + 2 < s.n ? hex_value(s.p[at + 1]) : -1;
        int low = high >= 0 ? hex_value(s.p[at + 2]) : -1;
        if (low >= 0) {
            out[n++] = (char)(high << 4 | low);
            at += 2;
        } else {
            out[n++] = s.p[at];
        }
    }
    out[n] = '\0';
    return (struct str){out, n};
}

static struct str compose(struct arena *arena, const struct parts *parts)
{
    struct buf buf;
    buf_init(&buf, 0);
    if (parts->scheme.p) {
        buf_add_str(&buf, parts->scheme);
        buf_add_char(&buf, ':');
    }
    if (parts->authority.p) {
        buf_add_text(&buf, "//");
        buf_add_str(&buf, parts->authority);
    }
    buf_add_str(&buf, parts->path);
    if (parts->query.p) {
        buf_add_char(&buf, '?');
        buf_add_str(&buf, parts->query);
    }
    struct str text = arena_str(arena, buf_str(&buf));
    buf_release(&buf);
    return text;
}

struct schema_uri schema_uri_resolve(struct arena *arena, struct str base_text, struct str reference)
{
    struct parts base = split(base_text);
    struct parts ref = split(reference);
    struct parts out = {.scheme = base.scheme, .authority = base.authority, .query = ref.query};
    if (ref.scheme.p) {
        out = ref;
        /* A path without "/" is opaque (urn:): nothing to take out. */
        if (ref.path.n && ref.path.p[0] == '/')
            out.path = remove_dots(arena, ref.path);
    } else if (ref.authority.p) {
        out.authority = ref.authority;
        out.path = remove_dots(arena, ref.path);
    } else if (!ref.path.n) {
        out.path = base.path;
        if (!ref.query.p)
            out.query = base.query;
    } else if (ref.path.p[0] == '/') {
        out.path = remove_dots(arena, ref.path);
    } else {
        out.path = remove_dots(arena, merge(arena, &base, ref.path));
    }
    struct schema_uri uri = {.base = compose(arena, &out), .fragment = STR_NONE};
    if (ref.fragment.p)
        uri.fragment = percent_decode(arena, ref.fragment);
    return uri;
}
