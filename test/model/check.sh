#!/usr/bin/env bash
# Has spin look at every reachable state of test/model/onced.pml in each configuration, and see each deliberate defect found.
#
#   test/model/check.sh           the configurations of CI, 70 s of CPU time
#   MODEL=full test/model/check.sh    also the large ones, some minutes and up to 4 GB
#   test/model/check.sh trace DEFECT  how spin breaks the model with that defect, shortest way first
#
# Exit status 0 only where all properties hold on the whole state space (no bit-state hashing, no depth cut off) and every
# defect is found. The last line is the number of states.
set -euo pipefail
MODEL=${MODEL:-quick}
JOBS=${MODEL_JOBS:-2}
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# name | what spin is given
configurations() {
    cat <<'LIST'
keyless, no look-up|-DPEOPLE=1 -DRACE
look-up|-DLOOKUP -DPEOPLE=0
look-up twice|-DLOOKUP -DPEOPLE=0 -DABSENT_TIMES=2
look-up, answers "later"|-DLOOKUP -DACCEPTS -DPEOPLE=1 -DCRASHES=0
keys|-DKEYED -DPEOPLE=0
keys, retention ends|-DKEYED -DRETENTION=4 -DPEOPLE=0
keys and look-up|-DKEYED -DLOOKUP -DPEOPLE=0 -DLEASE=1
one gateway, people|-DKEYED -DLOOKUP -DSOLE -DCRASHES=2 -DPEOPLE=1
late network|-DLOOKUP -DLATE -DPEOPLE=0 -DCRASHES=0
late network, keys|-DKEYED -DLATE -DPEOPLE=0
people lie|-DLIES -DPEOPLE=1
key ignored|-DKEYED -DKEY_IGNORED -DLOOKUP -DPEOPLE=0 -DCRASHES=0
LIST
    [ "$MODEL" = full ] && cat <<'LIST'
full: keyless|-DPEOPLE=2 -DCRASHES=3 -DRACE
full: look-up|-DLOOKUP -DPEOPLE=1 -DCRASHES=2
full: look-up, answers "later"|-DLOOKUP -DACCEPTS -DPEOPLE=1 -DCRASHES=1
full: keys, retention ends|-DKEYED -DRETENTION=4 -DPEOPLE=1 -DCRASHES=2
full: keys and look-up|-DKEYED -DLOOKUP -DPEOPLE=1 -DCRASHES=1
full: look-up before keys|-DKEYED -DLOOKUP -DLOOKUP_FIRST -DPEOPLE=0 -DCRASHES=2
full: keys, look-up, retention ends|-DKEYED -DLOOKUP -DRETENTION=4 -DPEOPLE=0 -DCRASHES=1
full: late network|-DLOOKUP -DLATE -DPEOPLE=0 -DCRASHES=2
full: late network, keys|-DKEYED -DLOOKUP -DLATE -DPEOPLE=0
full: people lie|-DKEYED -DLOOKUP -DLIES -DPEOPLE=1
LIST
    return 0
}

# Configurations whose operations must also all settle: finitely many crashes and pauses, weak fairness.
settling() {
    cat <<'LIST'
keyless, no look-up|-DPEOPLE=0
look-up|-DLOOKUP -DPEOPLE=0 -DCRASHES=1 -DLEASE=1 -DPAUSES=0
keys|-DKEYED -DPEOPLE=0 -DPAUSES=0
LIST
    [ "$MODEL" = full ] && cat <<'LIST'
full: look-up|-DLOOKUP -DPEOPLE=0 -DCRASHES=1
full: keys and look-up|-DKEYED -DLOOKUP -DPEOPLE=0 -DCRASHES=1
full: look-up, answers "later"|-DLOOKUP -DACCEPTS -DPEOPLE=0 -DCRASHES=1
LIST
    return 0
}

# defect | what spin is given besides. The last seven were the code's own until this model was written.
defects() {
    cat <<'LIST'
NO_UNIQUE_KEY|-DPEOPLE=0 -DRACE
NO_FENCE|-DPEOPLE=0
LEASE_END_MEANS_NOTHING_HAPPENED|-DPEOPLE=0
SEND_BEFORE_COMMIT|-DPEOPLE=0
RESEND_WITHOUT_KEY|-DPEOPLE=0
ABSENT_BEFORE_SETTLE|-DLOOKUP -DPEOPLE=0
DOUBT_FORGOTTEN|-DKEYED -DPEOPLE=0
CLOCK_CLOSES|-DLOOKUP -DPEOPLE=0
NEVER_GIVES_UP|-DLOOKUP -DPEOPLE=0
NO_LEASE_CHECK|-DLOOKUP -DPEOPLE=0
SETTLE_FROM_DISPATCH|-DLOOKUP -DPEOPLE=0
SETTLE_AT_ANSWER|-DLOOKUP -DPEOPLE=0
RETENTION_AT_DISPATCH|-DKEYED -DRETENTION=4 -DPEOPLE=0
EVIDENCE_ONLY_NOTED|-DPEOPLE=0
EVIDENCE_DROPPED|-DPEOPLE=0
ACCEPTED_COUNTS_FROM_DISPATCH|-DLOOKUP -DACCEPTS -DPEOPLE=1 -DCRASHES=0
LIST
}

# Liveness is what a defect breaks that lets look-ups go on for ever; all others break an assertion.
kind_of() {
    [ "$1" = NEVER_GIVES_UP ] && echo live || echo safe
}

# build KIND DEFINES [COMPILER FLAGS]: makes ./pan in the current folder
build() {
    local kind=$1 defines=$2 flags=-DSAFETY
    cp "$HERE/onced.pml" .
    if [ "$kind" = live ]; then
        defines="$defines -DLIVENESS"
        flags=-DNFAIR=3
    fi
    # shellcheck disable=SC2086
    spin $defines -a onced.pml >spin.out 2>&1 || { cat spin.out; return 1; }
    # clang takes half of gcc's time, which is more than what most configurations run
    # shellcheck disable=SC2086
    "$(command -v clang || command -v gcc)" -w -DMEMLIM=6000 $flags ${3:-} -o pan pan.c
}

property_of() {
    case $1 in
    *'acceptance cycle'*) echo "every operation settles" ;;
    *'effects==1)'*) echo "at most one effect per intent" ;;
    *'finding['*) echo "evidence is never thrown away" ;;
    *'owner==g'*) echo "only the owner dispatches" ;;
    *effects*) echo "no \"failed\" that happened" ;;
    *bound_broken*) echo "no effect after \"failed\"" ;;
    *) echo "$1" ;;
    esac
}

# one "EXPECT|KIND|NAME|DEFINES": runs it in a folder of its own, prints one line of the table
one() {
    local expect kind name defines folder out states transitions depth errors verdict=ok run
    IFS='|' read -r expect kind name defines <<<"$1"
    folder=$(mktemp -d "$SCRATCH/XXXXXX")
    cd "$folder"
    # compiling with -O1 takes ten seconds more: worth it for the large ones
    build "$kind" "$defines" "$([ "${name#full:}" = "$name" ] || echo -O1)"
    run=$([ "$kind" = live ] && echo "-a -f" || echo)
    # shellcheck disable=SC2086
    ./pan $run -m1000000 -w22 >out 2>&1 || true
    out=$(cat out)
    states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' out)
    transitions=$(sed -n 's/^ *\([0-9.e+]*\) transitions .*/\1/p' out)
    depth=$(sed -n 's/.*depth reached \([0-9]*\).*/\1/p' out)
    errors=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' out)
    if [ "$expect" = holds ]; then
        [ "$errors" = 0 ] && grep -q '^Full statespace search' out && ! grep -qi 'too small\|not completed\|out of memory\|aborted' out ||
            verdict=FAILED
        what=$([ "$kind" = live ] && echo "every operation settles" || echo "safety")
    else
        what=$(property_of "$(grep -m1 '^pan:1:' out || true)")
        [ "${errors:-0}" -gt 0 ] && grep -q '^pan:1: \(assertion violated\|acceptance cycle\)' out || verdict="NOT FOUND"
    fi
    printf '%s|%-36s|%-32s|%9s|%10s|%7s|%6s|%s\n' "$expect" "$name" "$what" "$states" "$transitions" "$depth" "$errors" "$verdict" >line
    cat line >>"$SCRATCH/lines"
    if [ "$verdict" != ok ]; then
        printf '%s\n' "$out" | grep -v unreached | head -20 >&2
    fi
    rm -f pan pan.? onced.pml onced.pml.trail
}

trace() {
    local entry defines
    entry=$(defects | grep "^$1|") || { echo "there is no defect $1; there are:" >&2; defects | cut -d'|' -f1 >&2; exit 2; }
    defines="${entry#*|} -DBUG_$1"
    cd "$SCRATCH"
    if [ "$(kind_of "$1")" = live ]; then
        build live "$defines"
        ./pan -a -f -m1000000 >out || true
        defines="$defines -DLIVENESS"
    else
        build safe "$defines" -DBFS
        ./pan >out || true
    fi
    # shellcheck disable=SC2086
    spin $defines -t onced.pml | sed 's/^  *\(row:\)/    \1/; s/^ *\(gateway\|provider\|a tick\)/\1/' |
        grep '^    row:\|^gateway\|^provider\|^a tick\|CYCLE\|assertion violated' || true
}

if [ "${1:-}" = one ]; then
    one "$2"
    exit
fi
for tool in spin gcc; do
    command -v "$tool" >/dev/null || { echo "test/model/check.sh needs $tool: sh tools/setup.sh model" >&2; exit 2; }
done
SCRATCH=$(mktemp -d)
export SCRATCH MODEL
trap 'rm -rf "$SCRATCH"' EXIT
if [ "${1:-}" = trace ]; then
    trace "${2:-}"
    exit
fi

list=$SCRATCH/list
{
    settling | sed 's/^/holds|live|/'
    configurations | sed 's/^/holds|safe|/'
    defects | while IFS='|' read -r name defines; do
        echo "found|$(kind_of "$name")|BUG_$name|$defines -DBUG_$name"
    done
} >"$list"
: >"$SCRATCH/lines"
start=$SECONDS
tr '\n' '\0' <"$list" | xargs -0 -n 1 -P "$JOBS" bash "${BASH_SOURCE[0]}" one || true

printf '%-36s %-32s %9s %10s %7s %6s\n' "configuration" "property" "states" "steps" "depth" "errors"
grep '^holds' "$SCRATCH/lines" | sort -t'|' -k2,3 | cut -d'|' -f2- | tr '|' ' '
printf '\n%-36s %-32s\n' "defect" "breaks"
grep '^found' "$SCRATCH/lines" | sort -t'|' -k2,2 | cut -d'|' -f2- | tr '|' ' '

wanted=$(wc -l <"$list")
good=$(grep -c '|ok$' "$SCRATCH/lines" || true)
held=$(grep -c '^holds.*|ok$' "$SCRATCH/lines" || true)
found=$(grep -c '^found.*|ok$' "$SCRATCH/lines" || true)
total=$(grep '^holds' "$SCRATCH/lines" | cut -d'|' -f4 | awk '{ sum += $1 } END { printf "%d", sum }')
echo
if [ "$good" -ne "$wanted" ]; then
    echo "$((wanted - good)) of $wanted runs did not end as they must"
    exit 1
fi
echo "$held configurations hold on $total states, all of them visited; $found of $found defects found; took $((SECONDS - start)) s"
