#!/bin/sh
# Runs each libFuzzer program for FUZZ_SECONDS (default 60), two at a time, from its seeds in test/fuzz/corpus. What it finds
# is kept in build-fuzz/findings; new inputs in build-fuzz/corpus. Prints one line per program and a closing line.
set -eu
cd "$(dirname "$0")/.."
seconds=${FUZZ_SECONDS:-60}
sh tools/build-fuzz.sh
mkdir -p build-fuzz/findings

one() {
    name=${1#fuzz_}
    mkdir -p "build-fuzz/corpus/$name" "test/fuzz/corpus/$name"
    dictionary=
    if [ -f "test/fuzz/$name.dict" ]; then
        dictionary=-dict=test/fuzz/$name.dict
    fi
    # shellcheck disable=SC2086
    if "build-fuzz/test/fuzz/$1" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 $dictionary \
        -artifact_prefix="build-fuzz/findings/$name-" "build-fuzz/corpus/$name" "test/fuzz/corpus/$name" \
        >"build-fuzz/findings/$name.log" 2>&1; then
        runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "build-fuzz/findings/$name.log")
        echo "passed: fuzz $name, $runs inputs in $seconds s"
    else
        tail -n 40 "build-fuzz/findings/$name.log"
        echo "failed: fuzz $name, see build-fuzz/findings/$name.log"
    fi
}

list=$(find build-fuzz/test/fuzz -maxdepth 1 -type f -name 'fuzz_*' -perm -100 -printf '%f\n' | sort)
[ -n "$list" ] || {
    echo "tools/fuzz.sh: no fuzzers were built" >&2
    exit 1
}
results=$(mktemp)
trap 'rm -f "$results"' EXIT
# shellcheck disable=SC2086
set -- $list
while [ $# -gt 0 ]; do
    one "$1" >"$results.1" &
    first=$!
    second=
    if [ $# -gt 1 ]; then
        one "$2" >"$results.2" &
        second=$!
        shift
    fi
    shift
    wait "$first"
    [ -z "$second" ] || wait "$second"
    cat "$results.1" $([ -n "$second" ] && echo "$results.2") | tee -a "$results"
    rm -f "$results.1" "$results.2"
done
passed=$(grep -c '^passed: ' "$results" || true)
failed=$(grep -c '^failed: ' "$results" || true)
echo "fuzzing: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
