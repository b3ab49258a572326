#include "core/tool.h"

static const char *const class_names[] = {
#define X(constant, text) text,
    CLASSES(X)
#undef X
};

#define CLASS_COUNT (sizeof class_names / sizeof *class_names)

const char *tool_class_name(enum tool_class value)
{
    return (size_t)value < CLASS_COUNT ? class_names[value] : "?";
}

bool tool_class_from_name(struct str text, enum tool_class *out)
{
    for (size_t i = 0; i < CLASS_COUNT; i++) {
        if (str_is(text, class_names[i])) {
            *out = (enum tool_class)i;
            return true;
        }
    }
    return false;
}

const char *strategy_name(enum strategy value)
{
    switch (value) {
    case STRATEGY_RESEND: return "resend";
    case STRATEGY_LOOKUP: return "lookup";
    case STRATEGY_WEBHOOK: return "webhook";
    case STRATEGY_MANUAL: return "manual";
    }
    return "?";
}

bool tool_is_write(const struct tool *tool)
{
    return tool->class != CLASS_READ;
}

int64_t tool_timeout_ms(const struct tool *tool)
{
    int64_t least_ms = tool->provider->timeout_ms;
    return tool->timeout_ms > least_ms ? tool->timeout_ms : least_ms;
}

bool tool_may_resend(const struct tool *tool)
{
    switch (tool->class) {
    case CLASS_READ: return true;
    case CLASS_INTERNAL_WRITE: return tool->provider->key_honoured;
    case CLASS_EXTERNAL_IDEMPOTENT:
        switch (tool->idempotent_by) {
        case IDEMPOTENT_BY_KEY: return tool->provider->key_honoured;
        case IDEMPOTENT_BY_PRECONDITION:
        case IDEMPOTENT_BY_NATURE: return true;
        }
        return false;
    case CLASS_EXTERNAL_WEAK:
    case CLASS_EXTERNAL_IRREVERSIBLE: return false;
    }
    return false;
}
