/* Section "ledger" of the registry file: a file or a database. */
#include "daemon/config.h"
#include "daemon/config_parts.h"

#include "adapter/http.h"
#include "base/pg_url.h"

#include <stdlib.h>

static const char *settled(const struct loader *loader, const char *text)
{
    struct arena *arena = &loader->loaded->arena;
    struct json *outer = json_object(arena), *inner = json_object(arena);
    json_set(arena, inner, STR("url"), json_string(str_of(text)));
    json_set(arena, outer, STR("members"), *inner);
    config_settle_members(loader, outer, "members");
    return arena_copy_str(arena, json_get_text(json_get(outer, "members"), "url"));
}

/* libpq's words may repeat what is wrong: not where it can be a secret. */
static void read_url(const struct loader *loader, struct config *config)
{
    struct problems *problems = loader->problems;
    char *url = NULL;
    const char *fault;
    bool referred = false, password;
    struct err err = {0};
    if (http_secret_expand(settled(loader, config->ledger.url), &url, &referred, &err)) {
        problems_add(problems, "/ledger/url", "%s", err.text);
        return;
    }
    config->ledger.shown = pg_url_shown(url, &config->arena, &fault, &password);
    if (!pg_url_is(url))
        problems_add(problems, "/ledger/url", "is no PostgreSQL URL, expected postgresql://user@host:port/database");
    else if (fault)
        problems_add(problems, "/ledger/url", "is not understood%s%s", referred ? "" : ": ", referred ? "" : fault);
    else if (password && !referred)
        problems_add(problems, "/ledger/url", "holds a password: give it by reference, ${env:NAME} or ${file:PATH}");
    config->ledger.where = arena_copy_text(&config->arena, url);
    free(url);
}

void config_ledger_finish(const struct loader *loader, struct config *config)
{
    struct config_ledger *ledger = &config->ledger;
    if (ledger->url && ledger->path)
        problems_add(loader->problems, "/ledger/path", "goes with no url: a ledger is in a file or in a database");
    ledger->where = ledger->shown =
        config_resolve_path(&config->arena, loader->folder, ledger->path ? str_of(ledger->path) : STR("onced.db"));
    if (ledger->url)
        read_url(loader, config);
}
