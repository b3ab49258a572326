#include "cli/cli.h"
#include "cli/command.h"

#include <string.h>

const struct cli_command cli_completion_command = {
    .name = "completion",
    .operands = "bash|zsh",
    .words = "bash zsh",
    .summary = "print the completion script of a shell",
    .text = "bash: source <(onced completion bash)\nzsh:  onced completion zsh > \"${fpath[1]}/_onced\"",
    .run = cli_completion,
};

/* ---- bash ---- */

static void all_names(void)
{
    for (size_t i = 0; cli_commands[i]; i++)
        printf("%s%s", i ? " " : "", cli_commands[i]->name);
}

/* Words that may follow `--option`: a case line per option that has a value. */
static void bash_values(const struct cli_command *command)
{
    const struct cli_option *option;
    for (size_t i = 0; (option = cli_command_option(command, i)); i++) {
        if (!option->value)
            continue;
        printf("    %s:--%s", command->name, option->name);
        if (option->id < 128)
            printf("|%s:-%c", command->name, option->id);
        if (option->words)
            printf(") COMPREPLY=($(compgen -W '%s' -- \"$word\")); return ;;\n", option->words);
        else if (strcmp(option->value, "FILE") == 0)
            printf(") COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n");
        else
            printf(") return ;;\n");
    }
}

static void bash_options(const struct cli_command *command)
{
    const struct cli_option *option;
    printf("    %s) options='", command->name);
    for (size_t i = 0; (option = cli_command_option(command, i)); i++)
        printf("%s--%s", i ? " " : "", option->name);
    printf("'; words='");
    if (command->words && strcmp(command->words, "COMMAND") == 0)
        all_names();
    else if (command->words && strcmp(command->words, "FILE") != 0)
        printf("%s", command->words);
    printf("'; files=%d ;;\n", command->words && strcmp(command->words, "FILE") == 0);
}

static void bash(void)
{
    printf("# bash completion of onced %s, made by: onced completion bash\n_onced()\n{\n", ONCED_VERSION);
    printf("    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]}\n"
           "    local options= words= files=0\n    COMPREPLY=()\n"
           "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        COMPREPLY=($(compgen -W '");
    all_names();
    printf("' -- \"$word\"))\n        return\n    fi\n    case $command:$before in\n");
    for (size_t i = 0; cli_commands[i]; i++)
        bash_values(cli_commands[i]);
    printf("    esac\n    case $command in\n");
    for (size_t i = 0; cli_commands[i]; i++)
        bash_options(cli_commands[i]);
    printf("    esac\n    case $word in\n    -*) COMPREPLY=($(compgen -W \"$options\" -- \"$word\")) ;;\n"
           "    *)  COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
           "        [ \"$files\" -eq 1 ] && COMPREPLY+=($(compgen -f -- \"$word\")) ;;\n    esac\n}\n"
           "complete -o filenames -F _onced onced\n");
}

/* ---- zsh ---- */

/* Text within '…[…]': quotes and brackets would end it, colons part its pieces. */
static void zsh_text(const char *text)
{
    for (const char *p = text; *p; p++) {
        if (*p == '\'')
            printf("'\\''");
        else if (strchr("[]:\\", *p))
            printf("\\%c", *p);
        else
            putchar(*p);
    }
}

static void zsh_option(const struct cli_option *option)
{
    printf("        '");
    if (option->id < 128)
        printf("(-%c --%s)'{-%c,--%s}'", option->id, option->name, option->id, option->name);
    else
        printf("--%s", option->name);
    printf("[");
    zsh_text(option->text);
    printf("]");
    if (option->value && option->words)
        printf(":%s:(%s)", option->value, option->words);
    else if (option->value && strcmp(option->value, "FILE") == 0)
        printf(":file:_files");
    else if (option->value) {
        printf(":");
        zsh_text(option->value);
        printf(": ");
    }
    printf("' \\\n");
}

static void zsh_command(const struct cli_command *command)
{
    const struct cli_option *option;
    printf("    %s)\n        _arguments -s \\\n", command->name);
    for (size_t i = 0; (option = cli_command_option(command, i)); i++)
        zsh_option(option);
    if (!command->words)
        printf("        '*: :'\n");
    else if (strcmp(command->words, "FILE") == 0)
        printf("        '*:file:_files'\n");
    else if (strcmp(command->words, "COMMAND") == 0)
        printf("        '1:command:(($commands))'\n");
    else
        printf("        '1:word:(%s)' '*: :'\n", command->words);
    printf("        ;;\n");
}

static void zsh(void)
{
    printf("#compdef onced\n# zsh completion of onced %s, made by: onced completion zsh\n_onced()\n{\n", ONCED_VERSION);
    printf("    local -a commands\n    commands=(\n");
    for (size_t i = 0; cli_commands[i]; i++) {
        printf("        '%s:", cli_commands[i]->name);
        zsh_text(cli_commands[i]->summary);
        printf("'\n");
    }
    printf("    )\n    if (( CURRENT == 2 )); then\n        _describe command commands\n        return\n    fi\n"
           "    local command=$words[2]\n    shift words\n    (( CURRENT-- ))\n    case $command in\n");
    for (size_t i = 0; cli_commands[i]; i++)
        zsh_command(cli_commands[i]);
    printf("    esac\n}\n_onced \"$@\"\n");
}

int cli_completion(int argc, char **argv)
{
    struct cli_args args;
    cli_args_init(&args, &cli_completion_command, argc, argv);
    int option = cli_args_next(&args);
    if (option == CLI_ARGS_HELP)
        return CLI_OK;
    if (option == CLI_ARGS_BAD || !cli_args_operands(&args, 1, 1))
        return CLI_USAGE;
    if (strcmp(args.operands[0], "bash") == 0)
        bash();
    else if (strcmp(args.operands[0], "zsh") == 0)
        zsh();
    else
        return cli_usage(&cli_completion_command, "'%s': expected bash or zsh", args.operands[0]);
    return CLI_OK;
}
