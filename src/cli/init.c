#include "daemon/init.h"

#include "cli/cli.h"
#include "cli/command.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

enum { ID_TOOL = 256, ID_URL, ID_METHOD, ID_CLASS, ID_KEY_HEADER, ID_TOKEN_ENV, ID_FORCE };

#define CLASS_WORDS "read internal_write external_idempotent external_weak external_irreversible"

static const struct cli_option options[] = {
    {ID_TOOL, "tool", "NAME", NULL, "name of the tool (default example.create)"},
    {ID_URL, "url", "URL", NULL, "what it calls (default: the refunds of onced fake-provider on port 9000)"},
    {ID_METHOD, "method", "METHOD", "GET POST PUT PATCH DELETE", "HTTP method (default POST, GET for class read)"},
    {ID_CLASS, "class", "CLASS", CLASS_WORDS, "side-effect class (default external_weak)"},
    {ID_KEY_HEADER, "key-header", "NAME", NULL, "the provider's idempotency key header, when it has one"},
    {ID_TOKEN_ENV, "token-env", "NAME", NULL, "environment variable with the provider's bearer token"},
    {ID_FORCE, "force", NULL, NULL, "overwrite FILE"},
    {0},
};

const struct cli_command cli_init_command = {
    .name = "init",
    .operands = "[FILE]",
    .words = "FILE",
    .summary = "write a commented registry file for one tool",
    .text =
        "Writes to FILE, or to standard output without one. The text passes `onced check` as it is; class, key and\n"
        "look-up are explained where they stand.",
    .options = options,
    .run = cli_init,
};

static int write_file(const char *path, bool force, struct str text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | (force ? O_TRUNC : O_EXCL), 0644);
    if (fd < 0 && errno == EEXIST) {
        fprintf(stderr, "onced init: %s exists already; --force overwrites it\n", path);
        return CLI_FAILED;
    }
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    bool written = file && fwrite(text.p, 1, text.n, file) == text.n;
    if (file)
        written = fclose(file) == 0 && written;
    if (!written) {
        fprintf(stderr, "onced init: %s cannot be written: %s\n", path, strerror(errno));
        return CLI_FAILED;
    }
    printf("%s is written. Next: onced check %s, then onced serve %s\n", path, path, path);
    return CLI_OK;
}

/* False when the option's value cannot be used (told). */
static bool take_option(int option, const struct cli_args *args, struct init_options *init, bool *force)
{
    switch (option) {
    case ID_TOOL: init->tool = args->value; break;
    case ID_URL: init->url = args->value; break;
    case ID_METHOD: init->method = args->value; break;
    case ID_KEY_HEADER: init->key_header = args->value; break;
    case ID_TOKEN_ENV: init->token_env = args->value; break;
    case ID_FORCE: *force = true; break;
    case ID_CLASS:
        if (tool_class_from_name(str_of(args->value), &init->class))
            break;
        cli_usage(args->command, "--class %s is not known, expected one of: " CLASS_WORDS, args->value);
        return false;
    }
    return true;
}

int cli_init(int argc, char **argv)
{
    struct cli_args args;
    struct init_options init = {.class = CLASS_EXTERNAL_WEAK};
    bool force = false;
    cli_args_init(&args, &cli_init_command, argc, argv);
    for (int option; (option = cli_args_next(&args)) != CLI_ARGS_END;) {
        if (option == CLI_ARGS_HELP)
            return CLI_OK;
        if (option == CLI_ARGS_BAD || !take_option(option, &args, &init, &force))
            return CLI_USAGE;
    }
    if (!cli_args_operands(&args, 0, 1))
        return CLI_USAGE;
    struct buf text;
    struct err err = {0};
    int status = CLI_OK;
    buf_init(&text, 0);
    if (init_write(&init, &text, &err) != ERR_NONE)
        status = cli_usage(&cli_init_command, "%s", err.text);
    else if (args.operand_count == 1)
        status = write_file(args.operands[0], force, buf_str(&text));
    else if (fwrite(text.p, 1, text.n, stdout) != text.n)
        status = CLI_FAILED;
    buf_release(&text);
    return status;
}
