#include "door/people.h"

#include "base/mem.h"

#include <stdlib.h>

struct person {
    struct person *next, *prev; /* those seen last come first */
    struct arena arena;
    const char *issuer;
    struct caller caller; /* in arena */
    int64_t seen_ms;
};

struct people {
    struct person *first, *last;
    size_t count;
};

struct people *people_new(void)
{
    return mem_zero(sizeof(struct people));
}

static void take_out(struct people *people, struct person *person)
{
    *(person->prev ? &person->prev->next : &people->first) = person->next;
    *(person->next ? &person->next->prev : &people->last) = person->prev;
    people->count--;
}

static void forget(struct people *people, struct person *person)
{
    take_out(people, person);
    arena_release(&person->arena);
    free(person);
}

void people_free(struct people *people)
{
    if (!people)
        return;
    while (people->first)
        forget(people, people->first);
    free(people);
}

bool people_may_decide(enum role role)
{
    switch (role) {
    case ROLE_AGENT: return false;
    case ROLE_APPROVER:
    case ROLE_OPERATOR:
    case ROLE_ADMIN: break;
    }
    return true;
}

static bool is_named(const struct person *person, const char *tenant, const char *principal)
{
    return text_equal(person->caller.principal, principal) && text_equal(person->caller.tenant, tenant);
}

/* What the last token said counts: one that no longer has the role takes it away. */
void people_saw(struct people *people, const char *issuer, const struct caller *caller, int64_t now_ms)
{
    struct person *person = people->first;
    while (person && !(is_named(person, caller->tenant, caller->principal) && text_equal(person->issuer, issuer)))
        person = person->next;
    if (person)
        forget(people, person);
    if (!people_may_decide(caller->role))
        return;
    if (people->count == PEOPLE_MAX)
        forget(people, people->last);
    person = mem_zero(sizeof *person);
    arena_init(&person->arena);
    person->issuer = arena_copy_text(&person->arena, issuer);
    person->caller = (struct caller){arena_copy_text(&person->arena, caller->tenant),
                                     arena_copy_text(&person->arena, caller->principal), caller->role,
                                     scope_copy(&person->arena, caller->scope)};
    person->seen_ms = now_ms;
    person->next = people->first;
    *(people->first ? &people->first->prev : &people->last) = person;
    people->first = person;
    people->count++;
}

/* ---- who exists ---- */

/* The scope of a token; false: not readable, and then it covers nothing. */
static bool covers(const struct token *token, const struct operation *op, struct err *err)
{
    struct arena arena;
    struct scope scope = {0};
    arena_init(&arena);
    bool good = !scope_list_parse(&arena, SCOPE_TOOLS, token->tools, &scope.tools, err) &&
                !scope_list_parse(&arena, SCOPE_ENTITIES, token->entities, &scope.entities, err) &&
                !scope_check_operation(&scope, op, err);
    arena_release(&arena);
    return good;
}

static bool token_lives(const struct token *token, int64_t now_ms)
{
    return !token->revoked_ms && (!token->expires_ms || token->expires_ms > now_ms);
}

enum err_code people_find(const struct people *people, const struct token *tokens, size_t count,
                          const struct operation *op, const char *principal, int64_t now_ms, struct people_ground *out,
                          struct err *err)
{
    bool exists = false;
    struct err outside = {0};
    for (size_t i = 0; i < count; i++) {
        const struct token *token = &tokens[i];
        if (!text_equal(token->tenant, op->tenant) || !text_equal(token->principal, principal) ||
            !token_lives(token, now_ms))
            continue;
        exists = true;
        if (people_may_decide(token->role) && covers(token, op, &outside)) {
            *out = (struct people_ground){.token = true};
            return ERR_NONE;
        }
    }
    for (const struct person *person = people ? people->first : NULL; person; person = person->next) {
        if (!is_named(person, op->tenant, principal) || now_ms - person->seen_ms > PEOPLE_KEEP_MS)
            continue;
        exists = true;
        if (scope_check_operation(person->caller.scope, op, &outside) == ERR_NONE) {
            *out = (struct people_ground){.issuer = person->issuer};
            return ERR_NONE;
        }
    }
    if (outside.code)
        return err_set(err, ERR_DENIED, "%s may not decide on it: %s", principal, outside.text);
    if (exists)
        return err_set(err, ERR_DENIED, "%s may not decide: no token of theirs has the role approver or above",
                       principal);
    return err_set(
        err, ERR_DENIED,
        "nobody is known as %s in this tenant: a principal with a token (onced token create), or one who has "
        "shown a signed token to this server",
        principal);
}
