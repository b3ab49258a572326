/* The registry file's server.jwt. Inside of config only. */
#ifndef DAEMON_CONFIG_AUTH_H
#define DAEMON_CONFIG_AUTH_H

#include "base/problem.h"
#include "daemon/config.h"
#include "daemon/config_options.h"

/* What config_jwt_section is read into. */
struct config_jwt {
    struct jwt_issuer issuer;
    const struct json *roles_map; /* borrowed from the tree */
};

struct config_auth_reader {
    struct arena *arena; /* of the config: what is read lives there */
    struct problems *problems;
    const char *folder; /* of the registry file */
};

/* section: the mapping of names to issuers, NULL = none. Fills the server's issuers; auth is known already. */
void config_auth_read(const struct config_auth_reader *reader, const struct json *section,
                      struct config_server *server);

#endif
