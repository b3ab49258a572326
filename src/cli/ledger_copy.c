#include "cli/cli.h"
#include "cli/ledger_verbs.h"
#include "cli/view.h"

#include "ledger/copy.h"

#include <inttypes.h>
#include <time.h>
#include <unistd.h>

#define SHOWN_BYTES 8 /* of digests for people */

struct telling {
    bool terminal;
    int64_t last_ms;
};

static int64_t clock_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void tell(void *user, enum table_id table, int64_t rows, bool comparing)
{
    struct telling *telling = user;
    int64_t now_ms = clock_ms();
    if (!telling->terminal || now_ms - telling->last_ms < 200)
        return;
    telling->last_ms = now_ms;
    fprintf(stderr, "\r%s %s: %" PRId64 " rows\033[K", comparing ? "comparing" : "copying", table_name(table), rows);
}

/* ---- the result ---- */

static void hex_of(const struct rows_digest *digest, size_t n, char *out)
{
    struct digest whole;
    memcpy(whole.b, digest->sum, sizeof whole.b);
    digest_hex(&whole, n, out);
}

static void add_side(struct json_out *out, const char *name, const struct rows_digest *side)
{
    char hex[2 * DIGEST_BYTES + 1];
    hex_of(side, DIGEST_BYTES, hex);
    json_out_name(out, name);
    json_out_object(out);
    json_out_member_int(out, "rows", side->rows);
    json_out_member_text(out, "digest", hex);
    json_out_end_object(out);
}

static void print_json(const struct copy_report *report, int64_t spent_ms)
{
    char digest[2 * DIGEST_BYTES + 1];
    struct json_out out;
    struct buf text;
    buf_init(&text, 0);
    json_out_init(&out, &text);
    json_out_object(&out);
    json_out_member_bool(&out, "equal", !report->differs);
    json_out_member_bool(&out, "resumed", report->resumed);
    json_out_member_int(&out, "copied", report->copied);
    json_out_member_int(&out, "mended_texts", report->mended);
    json_out_member_int(&out, "spent_ms", spent_ms);
    copy_digest(report->from, DIGEST_BYTES, digest);
    json_out_member_text(&out, "from_digest", digest);
    copy_digest(report->to, DIGEST_BYTES, digest);
    json_out_member_text(&out, "to_digest", digest);
    json_out_name(&out, "tables");
    json_out_object(&out);
    for (int i = 0; i < TABLE_IDS; i++) {
        json_out_name(&out, table_name((enum table_id)i));
        json_out_object(&out);
        add_side(&out, "from", &report->from[i]);
        add_side(&out, "to", &report->to[i]);
        json_out_end_object(&out);
    }
    json_out_end_object(&out);
    json_out_end_object(&out);
    printf("%s\n", text.p);
    buf_release(&text);
}

static void print_side(const char *name, const struct rows_digest *from, const struct rows_digest *to)
{
    char left[2 * SHOWN_BYTES + 1], right[2 * SHOWN_BYTES + 1];
    hex_of(from, SHOWN_BYTES, left);
    hex_of(to, SHOWN_BYTES, right);
    printf("%-14s %10" PRId64 " %s %10" PRId64 " %s%s\n", name, from->rows, left, to->rows, right,
           rows_digest_equal(from, to) ? "" : "  differs");
}

static void print_text(const struct copy_report *report, int64_t spent_ms)
{
    char digest[2 * SHOWN_BYTES + 1];
    int64_t rows = 0;
    for (int i = 0; i < TABLE_IDS; i++) {
        rows += report->to[i].rows;
        if (report->from[i].rows || report->to[i].rows)
            print_side(table_name((enum table_id)i), &report->from[i], &report->to[i]);
    }
    if (report->mended)
        printf("%" PRId64 " texts had bytes that PostgreSQL can not store; they are U+FFFD there\n", report->mended);
    copy_digest(report->to, SHOWN_BYTES, digest);
    if (!report->differs)
        printf("%s%" PRId64 " rows, equal on both sides (%s), %" PRId64 ".%03" PRId64 " s\n",
               report->resumed ? "resumed; " : "", rows, digest, spent_ms / 1000, spent_ms % 1000);
}

int ledger_copy_rows(const struct ledger_wish *wish, const char *from, const char *to)
{
    struct telling telling = {.terminal = isatty(STDERR_FILENO) && !wish->args.json};
    struct copy_options options = {.snapshot = wish->snapshot, .progress = tell, .user = &telling};
    struct bulk *source = NULL, *target = NULL;
    struct copy_report report = {0};
    enum bulk_trouble trouble;
    struct err err = {0};
    int64_t began_ms = clock_ms();
    int code = CLI_OK;
    if (bulk_open(from, wish->snapshot ? BULK_LOOK : BULK_TAKE, env_system(), &source, &trouble, &err) ||
        bulk_open(to, BULK_FILL, env_system(), &target, &trouble, &err)) {
        code = ledger_trouble(trouble, &err);
        goto out;
    }
    ledger_copy(source, target, &options, &report, &err);
    if (telling.terminal)
        fprintf(stderr, "\r\033[K");
    if ((!err.code || report.differs) && wish->args.json)
        print_json(&report, clock_ms() - began_ms);
    else if (!err.code || report.differs)
        print_text(&report, clock_ms() - began_ms);
    if (err.code)
        code = ledger_trouble(BULK_OTHER, &err);
    if (report.differs)
        code = CLI_UNSOUND;
out:
    bulk_close(target);
    bulk_close(source);
    return code;
}
