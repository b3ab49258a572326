/* `onced mcp import`: a registry skeleton from what a running server says of itself. */
#ifndef CLI_MCP_IMPORT_H
#define CLI_MCP_IMPORT_H

#include "cli/command.h"

#include <stdbool.h>
#include <stddef.h>

#define MCP_IMPORT_LIST_MAX 64 /* of env and of headers */

struct mcp_import {
    const char *config; /* registry file with the server, or NULL */
    const char *server; /* its name there */
    char *const *words; /* command, instead; word_count 0 = none */
    size_t word_count;
    const char *url;                      /* or that */
    const char *name;                     /* of the provider; NULL = made from command or URL */
    const char *env[MCP_IMPORT_LIST_MAX]; /* names of variables that the command gets */
    size_t env_count;
    const char *headers[MCP_IMPORT_LIST_MAX]; /* "NAME: VALUE" for url */
    size_t header_count;
    const char *output; /* NULL = standard output */
    bool force;
};

/* Borrows everything. Returns the exit code; problems are told. */
int cli_mcp_import(const struct cli_command *command, const struct mcp_import *import);

#endif
