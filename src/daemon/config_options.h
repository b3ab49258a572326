/* The one table of everything that a registry file may say. It drives reading, defaults, messages about unknown or
 * wrong members, `onced check`, the JSON Schema of the file and the generated reference page. A member that is not here
 * does not exist; adding one here documents it everywhere. */
#ifndef DAEMON_CONFIG_OPTIONS_H
#define DAEMON_CONFIG_OPTIONS_H

#include "base/buf.h"
#include "base/json.h"
#include "base/problem.h"
#include "core/tool.h"

/* Types, with the C type that a value is stored as. */
enum option_type {
    OPTION_TEXT,              /* text that is not empty → const char * */
    OPTION_BOOL,              /* true | false → bool */
    OPTION_INTEGER,           /* whole number min..max → unsigned */
    OPTION_COUNT,             /* the same → size_t */
    OPTION_DECIMAL,           /* number min..max, not stored */
    OPTION_DURATION,          /* 10s; min..max in ms → int64_t */
    OPTION_SIZE,              /* 64KB; min..max in bytes → size_t */
    OPTION_TEXTS,             /* list of texts that are not empty → const char *const *, size_t count */
    OPTION_FLAG_OR_TEXTS,     /* true, false or a list of texts, not stored */
    OPTION_CHOICE,            /* one of choices → enum (index in choices + base) */
    OPTION_CHOICES,           /* list of choices, none twice → enum array of at most max items, unsigned count */
    OPTION_DURATIONS,         /* list of durations → int64_t array of at most max items, unsigned count */
    OPTION_POINTER,           /* JSON Pointer, not stored */
    OPTION_POINTERS,          /* list of JSON Pointers → const char *const *, size_t count */
    OPTION_TEMPLATE,          /* text with {places}, not stored */
    OPTION_TEMPLATE_OR_JQ,    /* the same, or {jq: program} */
    OPTION_POINTER_OR_JQ,     /* JSON Pointer, or {jq: program} */
    OPTION_JQ,                /* jq program */
    OPTION_TEMPLATES,         /* mapping of names to text with {places} */
    OPTION_EQUALITIES,        /* mapping of JSON Pointers to a template or a plain value */
    OPTION_STATUSES,          /* list of HTTP statuses or {status, code, when} */
    OPTION_JSON_BODY,         /* any value with {places} in its texts; a text alone is a jq program */
    OPTION_FORM_BODY,         /* mapping with {places}; a text alone is a jq program */
    OPTION_SCHEMA,            /* a JSON Schema */
    OPTION_OBJECT,            /* any mapping → const struct json *, borrowed from the tree */
    OPTION_LIST,              /* any list → const struct json *, borrowed from the tree */
    OPTION_CLASSES,           /* mapping of names with wildcards to choices, not stored */
    OPTION_NORMALIZERS,       /* mapping of fields to normalisers */
    OPTION_MESSAGES,          /* mapping of states to text */
    OPTION_ANY,               /* anything: the caller judges it */
    OPTION_SECTION,           /* mapping with the members of `section`; stored members lie relative to `at` */
    OPTION_SECTIONS,          /* list of at most max such mappings, checked, not stored */
    OPTION_CHOICE_OR_SECTION, /* one of choices, not stored, or such a mapping */
    OPTION_MAP                /* mapping of names to `section` */
};

#define OPTION_CHOICES_MAX 8

/* Members of providers and tools that belong to some kinds of providers only: a set of bits. */
enum option_kind {
    OPTION_ANY_KIND = 0,
    OPTION_HTTP = 1,
    OPTION_MCP = 2,
    OPTION_COMMAND = 4,
    OPTION_MAIL = 8,
    OPTION_GUARDED = 16, /* tools whose effect the application performs itself */
    OPTION_STEPS = 32,   /* tools whose effect is that of other tools, one after the other */
    OPTION_SQL = 64,
};
#define OPTION_KIND_COUNT 7
/* All but steps. */
#define OPTION_PERFORMED (OPTION_HTTP | OPTION_MCP | OPTION_COMMAND | OPTION_MAIL | OPTION_GUARDED | OPTION_SQL)

struct option_kind_names {
    enum option_kind kind;
    const char *label, *one, *many; /* "MCP", "an MCP server", "MCP servers" */
};
extern const struct option_kind_names config_kinds[OPTION_KIND_COUNT];

struct option_section;

struct option {
    const char *name; /* options of one section may share a name when their kinds differ */
    enum option_type type;
    enum option_kind kind;
    bool required;
    bool imported;                           /* may be left out where an MCP server's import fills it in */
    bool of_steps;                           /* may be left out where a list of steps says it */
    bool may_be_empty;                       /* OPTION_TEXT: "" is a value */
    const char *fallback;                    /* default as written in the file; NULL: none */
    const char *by_class[5];                 /* tools: defaults by enum tool_class, instead of fallback */
    const char *computed;                    /* default in words, where it depends on other members */
    const char *choices[OPTION_CHOICES_MAX]; /* NULL-terminated */
    const char *unavailable;                 /* the one choice that this version refuses and does not document */
    const char *hint;                        /* added when the value is refused */
    unsigned base;                           /* value of the first choice */
    int64_t min, max;
    const struct option_section *section;
    size_t at, count_at; /* offset in the target + 1; 0 = not stored */
    const char *text;    /* what it means, one or two sentences; markdown */
};

struct option_section {
    const char *name; /* of the part of the file, for headings: "providers.NAME.key" */
    const char *text;
    const struct option *options;
    size_t count;
    bool free_names; /* as OPTION_MAP: names may be any text, not only those of tools and providers */
};

extern const struct option_section config_file, config_server_section, config_ledger_section, config_mcp_section,
    config_jwt_section, config_principal_section, config_provider_section, config_tool_section;
/* config_inbox.c */
extern const struct option_section config_inbox_section;
/* config_notify.c */
extern const struct option_section config_notify_section;
/* config_relay.c */
extern const struct option_section config_relay_section;
/* config_claims.c */
extern const struct option_section config_entity_section, config_state_guard_section, config_window_section,
    config_debit_section, config_budget_section;
/* config_playbook.c */
extern const struct option_section config_playbook_section;
/* config_steps.c */
extern const struct option_section config_step_section;
/* config_mail.c */
extern const struct option_section config_smtp_section, config_imap_section, config_tool_mail_section;
/* config_sql.c */
extern const struct option_section config_sql_section, config_tool_sql_section;
/* config_command.c */
extern const struct option_section config_command_section, config_command_key_section, config_run_section,
    config_command_lookup_section, config_guard_mode_section;

#define CONFIG_NAME_BYTES_MAX 64 /* of tools and providers */
bool config_name_valid(struct str name);

struct options_reader {
    struct arena *arena; /* stored texts and arrays */
    struct problems *problems;
    enum tool_class class; /* selects by_class defaults */
    enum option_kind kind; /* members of other ones are refused; OPTION_ANY_KIND: not known, all are taken */
    bool partial;          /* nothing is required: the section is merged into another one */
};

/* Checks value (the section's mapping; absent or of another type is told) against the section and stores members and
 * defaults into target, which may be NULL. Text is copied to the arena. OPTION_MAP members are left to the caller.
 * After a problem the member keeps its default. */
void options_read(const struct options_reader *reader, const struct option_section *section, const struct json *value,
                  const char *pointer, void *target);

/* "/tools" + "refund/create" → "/tools/refund~1create", in arena. */
const char *options_pointer(struct arena *arena, const char *parent, struct str token);

/* The name in candidates that is nearest to name by edit distance, or NULL when none is near. */
const char *options_nearest(struct str name, const char *const *candidates, size_t count);

/* What a value of this option looks like: "a duration (500ms, 10s, 5m, 24h, 30d)". */
void options_expected(const struct option *option, struct buf *out);

/* The JSON Schema (2020-12) of the whole file, indented; the reference page in Markdown. */
void options_write_schema(struct buf *out);
void options_write_reference(struct buf *out);

#endif
