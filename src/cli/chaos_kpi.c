#include "cli/chaos_kpi.h"

#define X(constant, name, text) {name, text},
static const struct {
    const char *name, *text;
} ends[] = {CHAOS_ENDS(X)}, doubts[] = {CHAOS_DOUBTS(X)};
#undef X

const char *chaos_end_name(enum chaos_end end)
{
    return ends[end].name;
}

const char *chaos_end_text(enum chaos_end end)
{
    return ends[end].text;
}

const char *chaos_doubt_name(enum chaos_doubt doubt)
{
    return doubts[doubt].name;
}

const char *chaos_doubt_text(enum chaos_doubt doubt)
{
    return doubts[doubt].text;
}

/* ---- times ---- */

static size_t bucket_of(int64_t ms)
{
    if (ms < HISTOGRAM_EXACT)
        return ms > 0 ? (size_t)ms : 0;
    unsigned doubling = 63 - (unsigned)__builtin_clzll((unsigned long long)ms); /* 2^doubling <= ms */
    size_t part = (size_t)((uint64_t)ms >> (doubling - 6)) - HISTOGRAM_PARTS;
    size_t bucket = HISTOGRAM_EXACT + (doubling - 10) * HISTOGRAM_PARTS + part;
    return bucket < HISTOGRAM_BUCKETS ? bucket : HISTOGRAM_BUCKETS - 1;
}

/* The largest time of a bucket. */
static int64_t bucket_ms(size_t bucket)
{
    if (bucket < HISTOGRAM_EXACT)
        return (int64_t)bucket;
    size_t above = bucket - HISTOGRAM_EXACT, doubling = 10 + above / HISTOGRAM_PARTS;
    int64_t part = (int64_t)(above % HISTOGRAM_PARTS) + HISTOGRAM_PARTS;
    return ((part + 1) << (doubling - 6)) - 1;
}

void histogram_add(struct histogram *histogram, int64_t ms)
{
    ms = ms > 0 ? ms : 0;
    histogram->count++;
    histogram->sum += ms;
    histogram->max = ms > histogram->max ? ms : histogram->max;
    histogram->buckets[bucket_of(ms)]++;
}

void histogram_merge(struct histogram *into, const struct histogram *from)
{
    into->count += from->count;
    into->sum += from->sum;
    into->max = from->max > into->max ? from->max : into->max;
    if (from->count > 0)
        for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++)
            into->buckets[i] += from->buckets[i];
}

int64_t histogram_percentile(const struct histogram *histogram, unsigned percent)
{
    int64_t rank = (histogram->count * percent + 99) / 100, seen = 0;
    if (histogram->count == 0)
        return 0;
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += histogram->buckets[i];
        if (seen >= rank && seen > 0)
            return bucket_ms(i) < histogram->max ? bucket_ms(i) : histogram->max;
    }
    return histogram->max;
}

int64_t histogram_between(const struct histogram *histogram, int64_t above, int64_t upto)
{
    int64_t count = 0;
    for (size_t i = 0; i < HISTOGRAM_BUCKETS && bucket_ms(i) <= upto; i++)
        if (bucket_ms(i) > above)
            count += histogram->buckets[i];
    return count;
}

/* ---- sums ---- */

void chaos_kpi_merge(struct chaos_kpi *into, const struct chaos_kpi *from)
{
    into->operations += from->operations;
    into->calls += from->calls;
    into->effects += from->effects;
    into->duplicates += from->duplicates;
    into->duplicates_excused += from->duplicates_excused;
    into->duplicates_keyless += from->duplicates_keyless;
    into->unknown += from->unknown;
    for (size_t i = 0; i < DOUBT_COUNT; i++)
        into->doubts[i] += from->doubts[i];
    for (size_t i = 0; i < END_COUNT; i++)
        into->ends[i] += from->ends[i];
    into->false_dedupe += from->false_dedupe;
    into->answers += from->answers;
    into->missed_dedupe += from->missed_dedupe;
    into->repeats += from->repeats;
    into->commits += from->commits;
    into->stale += from->stale;
    into->joined += from->joined;
    into->held += from->held;
    into->requests += from->requests;
    into->lookups += from->lookups;
    histogram_merge(&into->reconcile_ms, &from->reconcile_ms);
    histogram_merge(&into->added_ms, &from->added_ms);
}

int64_t chaos_kpi_resolved(const struct chaos_kpi *kpi)
{
    return kpi->doubts[DOUBT_RESEND] + kpi->doubts[DOUBT_LOOKUP] + kpi->doubts[DOUBT_EVIDENCE];
}
