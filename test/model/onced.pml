/* The lease, takeover and reconciliation protocol of onced for one intent: two gateways (or one), one ledger, one
 * provider, two attempts. test/model/check.sh has spin look at every reachable state; docs/proof.md says what came of it.
 *
 * Names are the code's: STATE_*, REASON_*, OUTCOME_* as in src/core, phases as in src/engine/internal.h; each step says
 * which function it stands for.
 *
 * What is modelled
 * - The ledger row, moved by compare-and-set on rev and owner fence. `current[g]` says that the copy which gateway g has
 *   in memory is of the stored rev: with that, the copy itself equals the row and need not be kept twice.
 * - A step of core and its commit is one atomic move. That time passes between a step and its commit is in the choice of
 *   the lease: a dispatch may be committed with any part of its lease over.
 * - Gateways: crash at any point, may pause for any time at any point (the process is not chosen), restart at once as a new
 *   incarnation. A crashed or fenced gateway's message stays on the wire and may arrive later.
 * - Time in ticks. Timers count down together (proctype ticker); SETTLE and RETENTION are the declared bounds: a message
 *   that has left does its work, visibly to look-ups, within less than SETTLE ticks or never. With -DLATE the network
 *   breaks that bound, which excuses what follows from it. Waits (backoff, intervals, hold) end at any moment.
 * - The provider: any message may be lost, refused, throttled, executed with the answer lost or delivered.
 * - People: resolve, retry, cancel at any time, honest unless -DLIES.
 * - Safety knows no fairness. For liveness (-DLIVENESS) each process that can go on at last does, and only PAUSES times does
 *   a gateway that lives stand still for longer than its lease.
 *
 * What is left out: arguments, several intents, approvals, compensation, the payload's retention (LEDGER_EXPIRE), noop,
 * wrong_object, key_in_use and 5xx (same step as a timeout), registry reloads, a ledger that cannot be written (a
 * commit tried again is a pause), clocks that jump or differ between gateways.
 *
 * Switches: KEYED the provider honours keys, strategy resend · LOOKUP strategy lookup · LOOKUP_FIRST before resend ·
 * RETENTION ticks that the provider remembers a key, 0 for ever · ACCEPTS the provider may answer "later" · KEY_IGNORED it
 * breaks its contract · LATE · LIES · SOLE one gateway, engine_start claims by `foreign` · CRASHES, PEOPLE how many ·
 * BUG_* deliberate defects, each of which check.sh must see found.
 */
#ifndef LEASE
#define LEASE 2
#endif
#ifndef SETTLE
#define SETTLE 2
#endif
#ifndef RETENTION
#define RETENTION 0
#endif
#ifndef ABSENT_TIMES
#define ABSENT_TIMES 1
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#ifndef PAUSES
#define PAUSES 1
#endif
#ifndef PEOPLE
#define PEOPLE 1
#endif
#define ATTEMPTS_MAX 2
#define SLOTS        3 /* messages on the wire at once: two attempts and one that a person asked for */
#if defined(LATE) || defined(LIES) || defined(KEY_IGNORED)
#define WATCHES 1
#else
#define WATCHES 0 /* would see nothing */
#endif

#ifdef SOLE
#define GATEWAYS 1
#else
#define GATEWAYS 2
#endif
#ifdef KEYED
#define IS_KEYED true
#else
#define IS_KEYED false
#endif
#ifdef LOOKUP
#define HAS_LOOKUP true
#else
#define HAS_LOOKUP false
#endif
#ifdef KEY_IGNORED
#define KEY_MAY_BE_IGNORED true
#else
#define KEY_MAY_BE_IGNORED false
#endif
#ifdef LATE
#define MAY_BE_LATE true
#else
#define MAY_BE_LATE false
#endif
#ifdef LIES
#define MAY_LIE true
#else
#define MAY_LIE false
#endif

mtype = { STATE_NONE, STATE_PLANNED, STATE_PENDING_DISPATCH, STATE_DISPATCHED, STATE_ACKNOWLEDGED,
          STATE_COMPLETED_SUCCESS, STATE_FAILED_RETRYABLE, STATE_FAILED_PERMANENT, STATE_UNKNOWN_OUTCOME, STATE_REJECTED };
/* Only the reasons that the code reads again; all others are REASON_NONE. */
mtype = { REASON_NONE, REASON_ACCEPTED, REASON_VERIFYING, REASON_PROVIDER_REFUSED, REASON_OPERATOR, REASON_NEEDS_OPERATOR };
mtype = { OUTCOME_OPEN, OUTCOME_NOT_SENT, OUTCOME_SUCCESS, OUTCOME_ACCEPTED, OUTCOME_REFUSED, OUTCOME_NOT_PROCESSED,
          OUTCOME_TIMEOUT, OUTCOME_FOUND, OUTCOME_SEVERAL, OUTCOME_ABSENT, OUTCOME_PENDING, OUTCOME_CANNOT_TELL };
/* Of a flight. WAKE: owned, about to step (PHASE_QUEUED, or handed out by a claim). SEND: the attempt is committed, nothing
 * has left. WIRE, LOOKUP: PHASE_WIRE. ANSWERED, SEEN: the finding of a call, of a look-up is about to be committed. FETCH:
 * reload() after ERR_STALE. EVIDENCE: reloaded, STEP_EVIDENCE is about to be committed. */
mtype = { PHASE_NONE, PHASE_WAKE, PHASE_SEND, PHASE_WIRE, PHASE_ANSWERED, PHASE_LOOKUP, PHASE_SEEN, PHASE_FETCH,
          PHASE_EVIDENCE, PHASE_EARLY /* BUG_SEND_BEFORE_COMMIT, BUG_NO_UNIQUE_KEY */ };
mtype = { SLOT_FREE, SLOT_FLYING, SLOT_HIDDEN /* executed, look-ups do not show it yet */ };

#define NOBODY 0
#define A_DEAD_ONE 3 /* owner: an incarnation that has crashed */

/* ---- the row (struct operation) ---- */
mtype state = STATE_NONE;
mtype reason = REASON_NONE;
bool may_have_applied, doubt /* unknown_since_ms != 0 */, wakes /* wake_at_ms != 0 */;
byte owner, attempts, absent_count, watch_next;
byte lease;    /* ticks until lease_until_ms */
byte quiet;    /* ticks until absence proves something: last_sent_ms + settle_ms */
byte key_left; /* ticks until first_sent_ms + key_retention_ms */
bool total_is_over, gave_up; /* total_ms, give_up_ms have passed */

/* ---- gateways (struct flight) ---- */
mtype phase[3] = PHASE_NONE;
mtype finding[3] = OUTCOME_OPEN;
bool current[3], owned[3];
byte send_left[3];     /* ticks during which the committed attempt may still leave */
bool began_settled[3]; /* the look-up began when absence proved something */
bool calls[3];         /* client calls with this key still to come */
byte crashes = CRASHES, people = PEOPLE;

/* ---- wire and provider ---- */
mtype slot[SLOTS] = SLOT_FREE;
byte due[SLOTS];    /* ticks within which the message must have done its work */
byte sender[SLOTS]; /* the gateway that waits for the answer, NOBODY when it no longer does */
byte effects, visible, key_known;

/* ---- what excuses a violation, and what was told to people ---- */
bool bound_broken, contract_broken, lied, incident_late_landing;

#define EXCUSED         (bound_broken || contract_broken || lied)
/* A second effect takes more: without keys nothing is sent again on the word of a clock, with keys it must be forgotten. */
#define TWICE_EXCUSED   (contract_broken || (bound_broken && RETENTION > 0) || (lied && (!IS_KEYED || RETENTION > 0)))
#define PROVES_EFFECT(f) (f == OUTCOME_SUCCESS || f == OUTCOME_FOUND || f == OUTCOME_SEVERAL)
#define SAYS_NO_EFFECT  (state == STATE_FAILED_RETRYABLE || state == STATE_FAILED_PERMANENT || state == STATE_REJECTED)
#define TERMINAL(s)     (s == STATE_COMPLETED_SUCCESS || s == STATE_FAILED_PERMANENT || s == STATE_REJECTED)
#define NOTHING_ON_WIRE (slot[0] == SLOT_FREE && slot[1] == SLOT_FREE && slot[2] == SLOT_FREE)
#define UNTAINTED_WAIT  (state == STATE_UNKNOWN_OUTCOME && reason == REASON_NEEDS_OPERATOR)
/* Liveness: every operation ends or waits for a person. */
#define SETTLED (TERMINAL(state) || UNTAINTED_WAIT)
#ifdef LIVENESS
ltl every_operation_settles { <>[] SETTLED }
#endif

/* ---- core/state.c, core/step.c ---- */

/* state_may_move() and what move() and check() assert; the properties of the row. */
inline move(to, why, evidence)
{
    assert(state == to || /* the table */
           (state == STATE_PLANNED && (to == STATE_PENDING_DISPATCH || to == STATE_DISPATCHED || to == STATE_REJECTED)) ||
           (state == STATE_PENDING_DISPATCH && (to == STATE_DISPATCHED || to == STATE_REJECTED)) ||
           (state == STATE_DISPATCHED && (to == STATE_ACKNOWLEDGED || to == STATE_COMPLETED_SUCCESS ||
                                          to == STATE_FAILED_RETRYABLE || to == STATE_FAILED_PERMANENT ||
                                          to == STATE_UNKNOWN_OUTCOME)) ||
           (state == STATE_ACKNOWLEDGED && (to == STATE_COMPLETED_SUCCESS || to == STATE_UNKNOWN_OUTCOME)) ||
           (state == STATE_FAILED_RETRYABLE && (to == STATE_DISPATCHED || to == STATE_FAILED_PERMANENT ||
                                                to == STATE_REJECTED)) ||
           (state == STATE_UNKNOWN_OUTCOME && (to == STATE_DISPATCHED || to == STATE_ACKNOWLEDGED ||
                                               to == STATE_COMPLETED_SUCCESS || to == STATE_FAILED_RETRYABLE ||
                                               to == STATE_FAILED_PERMANENT)) ||
           (evidence && to == STATE_COMPLETED_SUCCESS && SAYS_NO_EFFECT));
    /* a told result changes only by evidence, and then people are told */
    assert(!TERMINAL(state) || to == state || (to == STATE_COMPLETED_SUCCESS && incident_late_landing));
    printf("    row: %e -> %e (%e)\n", state, to, why);
    state = to;
    reason = why;
    assert(!(SAYS_NO_EFFECT && may_have_applied));
    assert(!(state == STATE_REJECTED && attempts > 0));
    assert(!(SAYS_NO_EFFECT && effects > 0) || EXCUSED);
    assert(state != STATE_COMPLETED_SUCCESS || effects > 0 || lied);
}

inline wake_later()
{
    owner = NOBODY;
    lease = 0;
    wakes = true;
}

inline wake_never()
{
    owner = NOBODY;
    lease = 0;
    wakes = false;
}

/* take_lease(): owner and lease of an attempt that begins. */
inline take_lease(g)
{
    owner = g;
    lease = LEASE;
    wakes = true;
}

inline schedule_closed()
{
    if
    :: watch_next > 0 && HAS_LOOKUP && watch_next <= WATCHES -> wake_later()
    :: else -> watch_next = 0; wake_never()
    fi
}

inline start_watch()
{
    if
    :: watch_next == 0 && HAS_LOOKUP -> watch_next = 1
    :: else
    fi
}

inline end(to, why, evidence)
{
    may_have_applied = (to == STATE_COMPLETED_SUCCESS);
    doubt = false;
    absent_count = 0;
    move(to, why, evidence);
    quiet = 0; /* nothing reads these again: fewer states */
    key_left = 0;
    total_is_over = true;
    gave_up = true;
    schedule_closed()
}

/* step_key_lasts(): the provider still knows the key when a message that leaves now has arrived. KEY_ROOM: ticks during which
 * that stays so. */
#ifdef BUG_RETENTION_AT_DISPATCH
#define KEY_LASTS (RETENTION == 0 || key_left > 0)
#define KEY_ROOM  LEASE
#else
#define KEY_LASTS (RETENTION == 0 || key_left >= SETTLE)
#define KEY_ROOM  (RETENTION > 0 && doubt -> key_left - SETTLE + 1 : LEASE)
#endif

/* step_may_resend() */
#ifdef BUG_RESEND_WITHOUT_KEY
#define MAY_RESEND (!total_is_over && attempts < ATTEMPTS_MAX)
#else
#define MAY_RESEND                                                                                                     \
    (IS_KEYED && !total_is_over && attempts < ATTEMPTS_MAX && reason != REASON_PROVIDER_REFUSED &&                     \
     reason != REASON_NEEDS_OPERATOR && KEY_LASTS)
#endif
/* may_look_up() */
#ifdef BUG_NEVER_GIVES_UP
#define MAY_LOOK_UP (HAS_LOOKUP && reason != REASON_NEEDS_OPERATOR)
#else
#define MAY_LOOK_UP (HAS_LOOKUP && reason != REASON_NEEDS_OPERATOR && !gave_up)
#endif

inline give_to_operator()
{
#ifdef BUG_CLOCK_CLOSES
    may_have_applied = false;
    end(STATE_FAILED_PERMANENT, REASON_NONE, false)
#else
    move(STATE_UNKNOWN_OUTCOME, REASON_NEEDS_OPERATOR, false);
    wake_never()
#endif
}

/* become_unknown(): in doubt from now on. Whoever held the attempt may have sent it up to this moment. */
inline become_unknown(why)
{
    may_have_applied = true;
    if
    :: !doubt -> doubt = true; gave_up = false
    :: else
    fi;
    absent_count = 0;
#ifndef BUG_SETTLE_FROM_DISPATCH
    if
    :: HAS_LOOKUP -> quiet = SETTLE
    :: else
    fi;
#endif
    move(STATE_UNKNOWN_OUTCOME, why, false);
    if
    :: MAY_RESEND || MAY_LOOK_UP -> wake_later()
    :: else -> reason = REASON_NEEDS_OPERATOR; wake_never()
    fi
}

/* fail_retryable(): proven no effect. */
inline fail_retryable(why)
{
    may_have_applied = false;
    if
    :: total_is_over -> end(STATE_FAILED_PERMANENT, REASON_NONE, false)
    :: else ->
        doubt = false;
        absent_count = 0;
        move(STATE_FAILED_RETRYABLE, why, false);
        wake_later()
    fi
}

#ifdef BUG_DOUBT_FORGOTTEN
#define DOUBTED false
#else
#define DOUBTED doubt
#endif

/* call_answer() */
inline call_answer(f)
{
    if
    :: f == OUTCOME_SUCCESS && doubt && HAS_LOOKUP -> /* success_after_doubt() */
        move(STATE_ACKNOWLEDGED, REASON_VERIFYING, false);
        wake_later()
    :: f == OUTCOME_SUCCESS && !(doubt && HAS_LOOKUP) -> end(STATE_COMPLETED_SUCCESS, REASON_NONE, false)
    :: f == OUTCOME_ACCEPTED ->
        gave_up = false;
#ifndef BUG_ACCEPTED_COUNTS_FROM_DISPATCH
        quiet = SETTLE;
#endif
        move(STATE_ACKNOWLEDGED, REASON_ACCEPTED, false);
        wake_later()
    :: f == OUTCOME_NOT_SENT -> /* not_sent(): nothing left, spends time only */
        attempts--;
        if
        :: DOUBTED -> become_unknown(REASON_NONE)
        :: else -> fail_retryable(REASON_NONE)
        fi
    :: f == OUTCOME_NOT_PROCESSED ->
        if
        :: DOUBTED -> become_unknown(REASON_NONE)
        :: !DOUBTED && attempts >= ATTEMPTS_MAX ->
            may_have_applied = false;
            end(STATE_FAILED_PERMANENT, REASON_NONE, false)
        :: else -> fail_retryable(REASON_NONE)
        fi
    :: f == OUTCOME_REFUSED ->
        if
        :: DOUBTED -> become_unknown(REASON_PROVIDER_REFUSED)
        :: else -> end(STATE_FAILED_PERMANENT, REASON_NONE, false)
        fi
    :: f == OUTCOME_TIMEOUT -> become_unknown(REASON_NONE)
    fi
}

inline look_again()
{
    wake_later()
}

/* proven_absent() */
inline proven_absent()
{
    start_watch();
    may_have_applied = false;
    if
    :: IS_KEYED && attempts < ATTEMPTS_MAX -> fail_retryable(REASON_NONE)
    :: else -> end(STATE_FAILED_PERMANENT, REASON_NONE, false)
    fi
}

/* absent_while_unknown(): absence counts from settle on, judged by the time when the look-up began. */
#ifdef BUG_ABSENT_BEFORE_SETTLE
#define ABSENCE_COUNTS(g) true
#else
#ifdef BUG_SETTLE_AT_ANSWER
#define ABSENCE_COUNTS(g) (quiet == 0)
#else
#define ABSENCE_COUNTS(g) began_settled[g]
#endif
#endif

inline absent_while_unknown(g)
{
    if
    :: !ABSENCE_COUNTS(g) -> look_again()
    :: else ->
        absent_count++;
        if
        :: absent_count >= ABSENT_TIMES -> proven_absent()
        :: else -> look_again()
        fi
    fi
}

/* lookup_answer() */
inline lookup_answer(g, f)
{
    if
    :: state == STATE_UNKNOWN_OUTCOME -> /* lookup_while_unknown() */
        if
        :: f == OUTCOME_FOUND || f == OUTCOME_SEVERAL /* incident */ -> end(STATE_COMPLETED_SUCCESS, REASON_NONE, true)
        :: f == OUTCOME_PENDING ->
            move(STATE_ACKNOWLEDGED, REASON_ACCEPTED, false);
            wake_later()
        :: f == OUTCOME_ABSENT -> absent_while_unknown(g)
        :: f == OUTCOME_CANNOT_TELL -> absent_count = 0; look_again()
        fi
    :: state == STATE_ACKNOWLEDGED -> /* lookup_while_acknowledged() */
        if
        :: f == OUTCOME_FOUND || f == OUTCOME_SEVERAL || reason == REASON_VERIFYING ->
            if
            :: f != OUTCOME_FOUND && f != OUTCOME_SEVERAL -> start_watch()
            :: else
            fi;
            end(STATE_COMPLETED_SUCCESS, REASON_NONE, true)
        :: else -> look_again()
        fi
    :: TERMINAL(state) -> /* lookup_while_closed(): the late-landing watch */
        watch_next++;
        if
        :: (f == OUTCOME_FOUND || f == OUTCOME_SEVERAL) && state != STATE_COMPLETED_SUCCESS ->
            incident_late_landing = true;
            end(STATE_COMPLETED_SUCCESS, REASON_NONE, true)
        :: else -> schedule_closed()
        fi
    fi
}

#ifdef BUG_EVIDENCE_ONLY_NOTED
#define EVIDENCE_ENDS_ATTEMPT false
#else
#define EVIDENCE_ENDS_ATTEMPT (state == STATE_DISPATCHED)
#endif

/* evidence(): a finding of somebody who no longer holds the row. */
inline evidence(f)
{
    if
    :: PROVES_EFFECT(f) && (state == STATE_UNKNOWN_OUTCOME || state == STATE_ACKNOWLEDGED || EVIDENCE_ENDS_ATTEMPT ||
                            SAYS_NO_EFFECT) ->
        incident_late_landing = (incident_late_landing || SAYS_NO_EFFECT);
        if
        :: state == STATE_DISPATCHED && attempts > 1 -> start_watch() /* another request may be under way */
        :: else
        fi;
        end(STATE_COMPLETED_SUCCESS, REASON_NONE, true)
    :: else /* a note: rev is raised, nothing else changes */
    fi;
    assert(!PROVES_EFFECT(f) || state == STATE_COMPLETED_SUCCESS) /* never thrown away (design 3.4) */
}

/* ---- engine/flight.c, ledger: transition with compare-and-set ---- */

/* check_change(): the stored rev is the one that the change was made for, and the fence holds the row. */
#define REV_FITS(g) current[g]
#ifdef BUG_NO_FENCE
#define FENCE_HOLDS(g) true
#else
#define FENCE_HOLDS(g) (!owned[g] || owner == g)
#endif
#define CAN_COMMIT(g) (REV_FITS(g) && FENCE_HOLDS(g))

/* rev + 1: every other copy is stale from here on. */
inline raise_rev(g)
{
    current[1] = (g == 1 && current[1]);
    current[2] = (g == 2 && current[2])
}

/* flight_free() */
inline leave(g)
{
    phase[g] = PHASE_NONE;
    finding[g] = OUTCOME_OPEN;
    current[g] = false;
    owned[g] = false;
    send_left[g] = 0;
    began_settled[g] = false
}

/* reload(): ERR_STALE. With a finding it becomes evidence, without one the flight ends. */
inline stale(g)
{
    printf("gateway %d: ERR_STALE\n", g);
    if
    :: finding[g] != OUTCOME_OPEN ->
        phase[g] = PHASE_FETCH;
        current[g] = false;
        owned[g] = false;
        began_settled[g] = false;
        finding[g] = (PROVES_EFFECT(finding[g]) -> OUTCOME_SUCCESS : OUTCOME_TIMEOUT) /* all the same from here on */
    :: else -> leave(g)
    fi
}

/* dispatch(): the commit that begins an attempt; also plan_first_state(). */
inline dispatch(g)
{
#ifndef BUG_NO_UNIQUE_KEY
    assert(owner == g); /* dispatch only by the owner as of the commit */
#endif
    attempts++;
    may_have_applied = true;
    if
    :: RETENTION > 0 && attempts == 1 -> key_left = RETENTION
    :: else
    fi;
    if
    :: HAS_LOOKUP -> quiet = SETTLE
    :: else
    fi;
    move(STATE_DISPATCHED, REASON_NONE, false);
    take_lease(g);
    if /* the commit itself takes time */
    :: true
    :: lease = LEASE - 1
    :: lease = 0
    fi;
    send_left[g] = (lease < KEY_ROOM -> lease : KEY_ROOM);
    raise_rev(g);
    current[g] = true;
    owned[g] = true
}

inline put_on_wire(g)
{
    printf("gateway %d sends\n", g);
    if
    :: slot[0] == SLOT_FREE -> slot[0] = SLOT_FLYING; due[0] = SETTLE; sender[0] = g
    :: slot[0] != SLOT_FREE && slot[1] == SLOT_FREE -> slot[1] = SLOT_FLYING; due[1] = SETTLE; sender[1] = g
    :: else -> assert(slot[2] == SLOT_FREE); slot[2] = SLOT_FLYING; due[2] = SETTLE; sender[2] = g
    fi
}

/* Nobody waits for the answer of a message of g any more. */
inline forget_answer(g)
{
    sender[0] = (sender[0] == g -> NOBODY : sender[0]);
    sender[1] = (sender[1] == g -> NOBODY : sender[1]);
    sender[2] = (sender[2] == g -> NOBODY : sender[2])
}

/* too_late_to_send(): nothing leaves when the lease may have ended meanwhile, nor under a key that may be forgotten. */
#ifdef BUG_NO_LEASE_CHECK
#define MAY_SEND(g) true
#else
#define MAY_SEND(g) (send_left[g] > 0)
#endif

/* lookup_begin(), committed before the look-up leaves */
inline lookup_begin(g)
{
    take_lease(g);
    raise_rev(g);
    current[g] = true;
    owned[g] = true;
    began_settled[g] = (quiet == 0);
    phase[g] = PHASE_LOOKUP
}

/* flight_wake(): STEP_WAKE, STEP_OWNER_GONE and what follows from the action. */
inline wake(g)
{
    if
    :: state == STATE_DISPATCHED -> /* owner_gone(): says nothing about the effect (design 3.3) */
#ifdef BUG_LEASE_END_MEANS_NOTHING_HAPPENED
        fail_retryable(REASON_NONE);
#else
        become_unknown(REASON_NONE);
#endif
        raise_rev(g);
        leave(g)
    :: (state == STATE_PENDING_DISPATCH && total_is_over) ->
        end(STATE_REJECTED, REASON_NONE, false);
        raise_rev(g);
        leave(g)
    :: (state == STATE_FAILED_RETRYABLE && total_is_over && reason != REASON_OPERATOR) ->
        end(STATE_FAILED_PERMANENT, REASON_NONE, false);
        raise_rev(g);
        leave(g)
    :: state == STATE_PLANNED || (state == STATE_PENDING_DISPATCH && !total_is_over) ||
       (state == STATE_FAILED_RETRYABLE && (!total_is_over || reason == REASON_OPERATOR)) ->
        if
        :: /* take_slot(): STEP_DISPATCH */
#ifdef BUG_SEND_BEFORE_COMMIT
            true ->
            put_on_wire(g);
            phase[g] = PHASE_EARLY
#else
            dispatch(g);
            phase[g] = PHASE_SEND
#endif
        :: !total_is_over -> /* hold(): breaker open, no slot, no room in the queue */
            if
            :: state == STATE_PLANNED -> move(STATE_PENDING_DISPATCH, REASON_NONE, false)
            :: else
            fi;
            wake_later();
            raise_rev(g);
            leave(g)
        fi
    :: state == STATE_UNKNOWN_OUTCOME -> /* wake_unknown(), next_strategy() */
        if
#ifdef LOOKUP_FIRST
        :: MAY_RESEND && !MAY_LOOK_UP ->
#else
        :: MAY_RESEND ->
#endif
            dispatch(g);
            phase[g] = PHASE_SEND
#ifdef LOOKUP_FIRST
        :: MAY_LOOK_UP ->
#else
        :: !MAY_RESEND && MAY_LOOK_UP ->
#endif
            lookup_begin(g)
        :: else ->
            give_to_operator();
            raise_rev(g);
            leave(g)
        fi
    :: state == STATE_ACKNOWLEDGED -> /* wake_acknowledged() */
        if
        :: reason == REASON_VERIFYING || !gave_up -> lookup_begin(g)
        :: else ->
            doubt = true;
            may_have_applied = true;
            give_to_operator();
            raise_rev(g);
            leave(g)
        fi
    :: TERMINAL(state) -> /* the late-landing watch */
        if
        :: watch_next > 0 && HAS_LOOKUP && watch_next <= WATCHES -> lookup_begin(g)
        :: else -> schedule_closed(); raise_rev(g); leave(g)
        fi
    fi
}

/* plan_first_state() and the insert, one transaction */
inline admit(g)
{
    if
    :: state = STATE_PENDING_DISPATCH; owner = g; dispatch(g); phase[g] = PHASE_SEND /* GATE_PASS: dispatched at once */
    :: state = STATE_PENDING_DISPATCH; take_lease(g); current[g] = true; owned[g] = true; phase[g] = PHASE_WAKE /* queued */
    :: state = STATE_PENDING_DISPATCH; wake_later(); leave(g)
    :: state = STATE_PLANNED; wake_later(); leave(g) /* not_before */
    fi
}

#ifdef SOLE /* engine_start() claims by `foreign`: no other process lives */
#define LEASE_OVER (lease == 0 || owner == A_DEAD_ONE)
#else
#define LEASE_OVER (lease == 0)
#endif
#ifdef LIVENESS
byte pauses = PAUSES;
#define CLAIMABLE(g) (owner == NOBODY || (LEASE_OVER && (owner != 3 - g || pauses > 0)))
#else
#define CLAIMABLE(g) (owner == NOBODY || LEASE_OVER)
#endif

/* One gateway. Each option is one turn of its loop; between two of them it may crash or pause. */
proctype gateway(byte g)
{
end_idle:
    do
    /* call.c: LEDGER_ADMIT. The unique key elects; everybody else joins or is given the stored result. */
    :: atomic { calls[g] && phase[g] == PHASE_NONE ->
        calls[g] = false;
        if
#ifdef BUG_NO_UNIQUE_KEY
        :: state == STATE_NONE -> phase[g] = PHASE_EARLY /* looked, and will insert what it made up its mind on */
#else
        :: state == STATE_NONE -> admit(g)
#endif
        :: else
        fi }
#ifdef BUG_NO_UNIQUE_KEY
    :: atomic { phase[g] == PHASE_EARLY ->
        if
        :: state == STATE_NONE -> admit(g)
        :: else -> put_on_wire(g); phase[g] = PHASE_WIRE /* a row of its own, which sends */
        fi }
#endif

    /* LEDGER_CLAIM_DUE, take_up(). wake_at of an owned row is the end of its lease. rev is not raised. */
    :: atomic { state != STATE_NONE && wakes && phase[g] == PHASE_NONE && CLAIMABLE(g) ->
#ifdef LIVENESS
        pauses = (owner == 3 - g -> pauses - 1 : pauses);
#endif
        printf("gateway %d claims the row\n", g);
        owner = g;
        lease = LEASE;
        phase[g] = PHASE_WAKE;
        current[g] = true;
        owned[g] = true }
#ifndef LIVENESS
    :: atomic { state != STATE_NONE && wakes && owner != NOBODY && lease == 0 && phase[g] != PHASE_NONE ->
        owner = g; /* take_up(): in memory here, be it of an older rev: only the lease is renewed */
        lease = LEASE }
#endif

    :: atomic { phase[g] == PHASE_WAKE ->
        if
        :: CAN_COMMIT(g) -> wake(g)
        :: else -> stale(g)
        fi }

#ifdef BUG_SEND_BEFORE_COMMIT
    :: atomic { phase[g] == PHASE_EARLY ->
        if
        :: CAN_COMMIT(g) -> dispatch(g); phase[g] = PHASE_WIRE
        :: else -> forget_answer(g); leave(g)
        fi }
#endif

    /* flight_send() */
    :: atomic { phase[g] == PHASE_SEND ->
        if
        :: MAY_SEND(g) -> put_on_wire(g); phase[g] = PHASE_WIRE
        :: finding[g] = OUTCOME_NOT_SENT; phase[g] = PHASE_ANSWERED /* too late, or no connection */
        fi;
        send_left[g] = 0 }

    /* answered(): nothing came in time. That the answer did come is in the provider. */
    :: atomic { phase[g] == PHASE_WIRE ->
        printf("gateway %d hears nothing in time\n", g);
        forget_answer(g);
        finding[g] = OUTCOME_TIMEOUT;
        phase[g] = PHASE_ANSWERED }

    /* STEP_ANSWER */
    :: atomic { phase[g] == PHASE_ANSWERED ->
        if
        :: CAN_COMMIT(g) -> call_answer(finding[g]); raise_rev(g); leave(g)
        :: else -> stale(g)
        fi }

    /* The provider looks, at some moment between the beginning of the look-up and its answer. */
    :: atomic { phase[g] == PHASE_LOOKUP ->
        if
        :: visible == 0 -> finding[g] = OUTCOME_ABSENT
        :: visible == 1 -> finding[g] = OUTCOME_FOUND
#ifdef ACCEPTS
        :: visible == 1 -> finding[g] = OUTCOME_PENDING
#endif
        :: visible > 1 -> finding[g] = OUTCOME_SEVERAL
        :: finding[g] = OUTCOME_CANNOT_TELL
        fi;
        printf("gateway %d looks up: %e\n", g, finding[g]);
        phase[g] = PHASE_SEEN }

    /* STEP_LOOKUP_ANSWER */
    :: atomic { phase[g] == PHASE_SEEN ->
        if
        :: CAN_COMMIT(g) -> lookup_answer(g, finding[g]); raise_rev(g); leave(g)
        :: else -> stale(g)
        fi }

    /* reload_done() */
    :: atomic { phase[g] == PHASE_FETCH -> current[g] = true; owned[g] = (owner == g); phase[g] = PHASE_EVIDENCE }

    /* STEP_EVIDENCE */
    :: atomic { phase[g] == PHASE_EVIDENCE ->
        if
        :: CAN_COMMIT(g) -> evidence(finding[g]); raise_rev(g); leave(g)
        :: else ->
#ifdef BUG_EVIDENCE_DROPPED
            assert(!PROVES_EFFECT(finding[g]) || state == STATE_COMPLETED_SUCCESS);
            leave(g)
#else
            stale(g)
#endif
        fi }

    /* kill -9; the next incarnation has another name */
    :: atomic { crashes > 0 && (phase[g] != PHASE_NONE || owner == g) ->
        printf("gateway %d crashes\n", g);
        crashes--;
        owner = (owner == g -> A_DEAD_ONE : owner);
        forget_answer(g);
        leave(g) }
    od
}

inline answer(i, f)
{
    if
    :: sender[i] != NOBODY ->
        printf("provider answers gateway %d: %e\n", sender[i], f);
        finding[sender[i]] = f;
        phase[sender[i]] = PHASE_ANSWERED;
        sender[i] = NOBODY
    :: else
    fi
}

/* Slots are kept in the order of sending: fewer states. */
inline clear(i)
{
    if
    :: i == 0 -> slot[0] = slot[1]; due[0] = due[1]; sender[0] = sender[1]
    :: else
    fi;
    if
    :: i <= 1 -> slot[1] = slot[2]; due[1] = due[2]; sender[1] = sender[2]
    :: else
    fi;
    slot[2] = SLOT_FREE;
    due[2] = 0;
    sender[2] = NOBODY
}

inline do_it(i)
{
    printf("provider executes a message of gateway %d: effect %d\n", sender[i], effects + 1);
    effects++;
    key_known = (IS_KEYED -> (RETENTION == 0 -> 1 : RETENTION) : 0);
    assert(effects == 1 || TWICE_EXCUSED); /* at most one effect per intent */
    assert(!SAYS_NO_EFFECT || EXCUSED);    /* no effect after "no effect" */
    slot[i] = SLOT_HIDDEN
}

/* The provider meets message i. An answer that is lost is the sender's time-out. */
inline meet(i)
{
    if
    :: key_known > 0 -> /* honours its key: the stored answer, no second effect */
        if
        :: true -> answer(i, OUTCOME_SUCCESS)
        :: true
        fi;
        clear(i)
    :: key_known == 0 || KEY_MAY_BE_IGNORED ->
        contract_broken = (contract_broken || key_known > 0);
        do_it(i);
        if
        :: true -> answer(i, OUTCOME_SUCCESS)
#ifdef ACCEPTS
        :: true -> answer(i, OUTCOME_ACCEPTED)
#endif
        :: sender[i] = NOBODY /* answer lost, 5xx, unreadable */
        fi;
        if
        :: !HAS_LOOKUP -> clear(i) /* nobody can see the difference */
        :: else
        fi
    :: key_known == 0 ->
        if
        :: true -> answer(i, OUTCOME_REFUSED)
        :: true -> answer(i, OUTCOME_NOT_PROCESSED)
        fi;
        clear(i)
    :: true -> clear(i) /* lost on the way */
    fi
}

proctype provider()
{
    byte i;
end_idle:
    do
    :: atomic { slot[0] != SLOT_FREE ->
        if
        :: i = 0
        :: slot[1] != SLOT_FREE -> i = 1
        :: slot[2] != SLOT_FREE -> i = 2
        fi;
        if
        :: slot[i] == SLOT_FLYING -> meet(i)
        :: slot[i] == SLOT_HIDDEN -> visible++; clear(i) /* look-ups show it now */
        fi;
        i = 0 }
    od
}

#define IN_TIME(i) (slot[i] == SLOT_FREE || due[i] > 1)
#define LESS(t)    t = (t > 0 -> t - 1 : 0)

proctype ticker()
{
end_idle:
    do
    :: atomic { (lease > 0 || quiet > 0 || key_left > 0 || (RETENTION > 0 && key_known > 0) || send_left[1] > 0 ||
                 send_left[2] > 0 || due[0] > 0 || due[1] > 0 || due[2] > 0) &&
                ((IN_TIME(0) && IN_TIME(1) && IN_TIME(2)) || MAY_BE_LATE) ->
        bound_broken = (bound_broken || !(IN_TIME(0) && IN_TIME(1) && IN_TIME(2)));
        printf("a tick passes\n");
        LESS(lease);
        LESS(quiet);
        LESS(key_left);
        if
        :: RETENTION > 0 -> LESS(key_known)
        :: else
        fi;
        LESS(send_left[1]);
        LESS(send_left[2]);
        LESS(due[0]);
        LESS(due[1]);
        LESS(due[2]) }
    od
}

proctype total_ms()
{
end_idle:
    do
    :: atomic { state != STATE_NONE && !total_is_over -> total_is_over = true }
    od
}

proctype give_up_ms()
{
end_idle:
    do
    :: atomic { !gave_up && (state == STATE_UNKNOWN_OUTCOME || state == STATE_ACKNOWLEDGED) -> gave_up = true }
    od
}

/* decide.c and the people's part of step.c: load, check the version, step, commit. What comes between load and commit ends
 * as REPLY_STALE, so that only the uninterrupted case is left. */
proctype person()
{
end_idle:
    do
    /* resolve(): happened */
    :: atomic { people > 0 && (state == STATE_UNKNOWN_OUTCOME || state == STATE_ACKNOWLEDGED || SAYS_NO_EFFECT) &&
                (effects > 0 || MAY_LIE) ->
        people--;
        lied = (lied || effects == 0);
        incident_late_landing = (incident_late_landing || SAYS_NO_EFFECT);
        end(STATE_COMPLETED_SUCCESS, REASON_NONE, true);
        raise_rev(0) }
    /* resolve(): did not happen. An honest one says so when nothing that has left can still arrive. */
    :: atomic { people > 0 && (state == STATE_UNKNOWN_OUTCOME || state == STATE_ACKNOWLEDGED) &&
                ((effects == 0 && NOTHING_ON_WIRE) || MAY_LIE) ->
        people--;
        lied = (lied || effects > 0 || !NOTHING_ON_WIRE);
        start_watch();
        may_have_applied = false;
        if
        :: state == STATE_ACKNOWLEDGED -> move(STATE_UNKNOWN_OUTCOME, REASON_OPERATOR, true)
        :: else
        fi;
        doubt = false;
        if
        :: absent_count = 0; move(STATE_FAILED_RETRYABLE, REASON_OPERATOR, true); wake_later()
        :: end(STATE_FAILED_PERMANENT, REASON_NONE, true)
        fi;
        raise_rev(0) }
    /* retry() */
    :: atomic { people > 0 && (state == STATE_PENDING_DISPATCH || state == STATE_FAILED_RETRYABLE ||
                               state == STATE_ACKNOWLEDGED || state == STATE_UNKNOWN_OUTCOME) ->
        people--;
        if
        :: state == STATE_UNKNOWN_OUTCOME -> gave_up = false; absent_count = 0
        :: else
        fi;
        if
        :: reason != REASON_VERIFYING && reason != REASON_ACCEPTED -> reason = REASON_OPERATOR
        :: else
        fi;
        wake_later();
        raise_rev(0) }
    /* cancel() */
    :: atomic { people > 0 && (state == STATE_PLANNED || state == STATE_PENDING_DISPATCH || state == STATE_FAILED_RETRYABLE) ->
        people--;
        if
        :: attempts == 0 -> end(STATE_REJECTED, REASON_NONE, false)
        :: else -> end(STATE_FAILED_PERMANENT, REASON_NONE, false)
        fi;
        raise_rev(0) }
    od
}

/* Nothing can happen any more: then the operation has ended or waits for a person. */
proctype rest()
{
end_idle:
    atomic { timeout -> assert(SETTLED) /* nothing is left over */ }
}

init
{
    atomic {
        /* Admission is one transaction and the gateways are alike, so without -DRACE gateway 1 is the one that is elected. */
        calls[1] = true;
#ifdef RACE
        calls[2] = true;
#endif
        run gateway(1);
#if GATEWAYS == 2
        run gateway(2);
#endif
        run provider();
        run ticker();
        run total_ms();
        run give_up_ms();
        run person();
        run rest()
    }
}
