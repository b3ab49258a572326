#include "cli/eval_judge.h"

#include "cli/eval_reason.h"

const char *finding_kind_name(enum finding_kind kind)
{
    switch (kind) {
    case FINDING_COLLISION: return "collision";
    case FINDING_SPLIT: return "split";
    case FINDING_OTHER: return "other";
    }
    return "?";
}

struct judge {
    struct eval_verdict *verdict;
    struct arena *arena;
};

static void find(const struct judge *judge, enum finding_kind kind, size_t earlier, size_t later, const char *why)
{
    struct eval_verdict *verdict = judge->verdict;
    verdict->findings[verdict->finding_count++] = (struct eval_finding){kind, earlier, later, why};
}

/* The call that opened the operation which a later call was told of; the first judged one when none of them did. */
static size_t opener(const struct eval_verdict *verdict, size_t later)
{
    for (size_t i = 0; i < later; i++) {
        const struct eval_result *result = &verdict->results[i];
        if (result->answer == ANSWER_OPENED && strcmp(result->operation, verdict->results[later].operation) == 0)
            return i;
    }
    return verdict->group->first;
}

static void found_collision(const struct judge *judge, size_t earlier, size_t later)
{
    const struct eval_result *results = judge->verdict->results;
    find(judge, FINDING_COLLISION, earlier, later,
         eval_reason_one(judge->arena, &results[earlier], earlier + 1, &results[later], later + 1));
}

static void found_split(const struct judge *judge, size_t earlier, size_t later)
{
    const struct eval_result *results = judge->verdict->results;
    find(judge, FINDING_SPLIT, earlier, later,
         eval_reason_two(judge->arena, &results[earlier], earlier + 1, &results[later], later + 1));
}

static void found_other(const struct judge *judge, size_t earlier, size_t later)
{
    const struct eval_result *result = &judge->verdict->results[later];
    find(judge, FINDING_OTHER, earlier, later,
         arena_printf(judge->arena, "call %zu %s%s%s", later + 1, answer_words(result->answer),
                      result->text ? ": " : "", result->text ? result->text : ""));
}

/* Every call of its own: what points to an earlier operation, as result or as conflict, is a collision. */
static void judge_distinct(const struct judge *judge, size_t i)
{
    switch (judge->verdict->results[i].answer) {
    case ANSWER_OPENED: break;
    case ANSWER_JOINED:
    case ANSWER_CONFLICT:
    case ANSWER_NOT_SHARED: found_collision(judge, opener(judge->verdict, i), i); break;
    case ANSWER_HELD:
    case ANSWER_REFUSED:
    case ANSWER_READ:
    case ANSWER_BROKEN: found_other(judge, i, i); break;
    }
}

static enum answer wanted_answer(enum expectation expectation)
{
    switch (expectation) {
    case EXPECT_SAME: return ANSWER_JOINED;
    case EXPECT_DISTINCT: return ANSWER_OPENED;
    case EXPECT_CONFLICT: return ANSWER_CONFLICT;
    case EXPECT_HELD: return ANSWER_HELD;
    case EXPECT_NOT_SHARED: return ANSWER_NOT_SHARED;
    case EXPECT_REFUSED: return ANSWER_REFUSED;
    case EXPECTATION_COUNT: break;
    }
    return ANSWER_BROKEN;
}

/* Whether the answer is about the first call's operation and says what the group says. */
static bool as_wanted(const struct judge *judge, size_t i)
{
    const struct eval_verdict *verdict = judge->verdict;
    const struct eval_result *result = &verdict->results[i], *first = &verdict->results[verdict->group->first];
    enum expectation expectation = verdict->group->expectation;
    if (result->answer != wanted_answer(expectation))
        return false;
    return expectation == EXPECT_REFUSED || strcmp(result->operation, first->operation) == 0;
}

static void judge_because(const struct judge *judge, size_t i)
{
    const char *because = judge->verdict->group->because;
    const struct eval_result *result = &judge->verdict->results[i];
    if (because && !(result->text && strstr(result->text, because)))
        find(judge, FINDING_OTHER, i, i,
             arena_printf(judge->arena, "call %zu %s, but not because of \"%s\": %s", i + 1,
                          answer_words(result->answer), because, result->text ? result->text : ""));
}

/* The call that the others are measured by. What happened before the group may have opened its operation. */
static bool first_is_fine(const struct eval_verdict *verdict)
{
    enum answer answer = verdict->results[verdict->group->first].answer;
    return answer == ANSWER_OPENED || (answer == ANSWER_JOINED && verdict->group->first > 0);
}

/* One operation, the first call's; the others are given it, or are turned away because of it. */
static void judge_one(const struct judge *judge, size_t i)
{
    const struct eval_result *result = &judge->verdict->results[i];
    size_t first = judge->verdict->group->first;
    bool refused = judge->verdict->group->expectation == EXPECT_REFUSED;
    if (i == first && !refused) {
        if (!first_is_fine(judge->verdict))
            found_other(judge, i, i);
        return;
    }
    if (as_wanted(judge, i))
        judge_because(judge, i);
    else if (refused || !first_is_fine(judge->verdict))
        found_other(judge, i, i);
    else if (result->answer == ANSWER_OPENED)
        found_split(judge, first, i);
    else if (result->answer == ANSWER_JOINED)
        found_collision(judge, opener(judge->verdict, i), i);
    else
        found_other(judge, first, i);
}

void eval_judge(struct eval_world *world, const struct eval_group *group, struct arena *arena, struct eval_verdict *out)
{
    *out = (struct eval_verdict){
        .group = group,
        .results = arena_zero(arena, group->call_count * sizeof *out->results),
        .findings = arena_zero(arena, group->call_count * sizeof *out->findings),
    };
    eval_world_begin(world);
    for (size_t i = 0; i < group->call_count; i++)
        eval_world_call(world, &group->calls[i], out->results, arena, &out->results[i]);
    eval_world_end(world);
    struct judge judge = {out, arena};
    for (size_t i = 0; i < group->first; i++)
        if (out->results[i].answer == ANSWER_BROKEN)
            found_other(&judge, i, i);
    for (size_t i = group->first; i < group->call_count; i++) {
        if (group->expectation == EXPECT_DISTINCT)
            judge_distinct(&judge, i);
        else
            judge_one(&judge, i);
    }
}
