# Shared by the scripts of this folder, which begin with:  . "$(dirname "$0")/lib.sh"
#
# Each script stands for one claim. It builds what it needs, exits 0 only where the claim holds on this checkout, and prints
# its figure as the last line.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
ROOT=$PWD
SCRATCH=$(mktemp -d)
trap 'rm -rf "$SCRATCH"' EXIT
export ONCED_FIGURES=$SCRATCH/figures
: >"$ONCED_FIGURES"

fail() {
    echo "does not hold: $*"
    exit 1
}

# The release build that users get; end-to-end tests then run it.
program() {
    make --no-print-directory build
    export ONCED_BIN=$ROOT/build/src/cli/onced ONCED=$ROOT/build/src/cli/onced
}

# Runs pytest on these arguments; a skipped test proves nothing.
e2e() {
    sh tools/setup.sh test
    sh tools/e2e-setup.sh
    test/e2e/.venv/bin/python -B -m pytest -q -s -rfE -p no:cacheprovider "--junitxml=$SCRATCH/junit.xml" "$@" ||
        fail "a test failed"
    if grep -q '<skipped' "$SCRATCH/junit.xml"; then
        grep -o '<testcase[^>]*>\s*<skipped[^>]*' "$SCRATCH/junit.xml" | sed 's/.*name="\([^"]*\)".*message="\([^"]*\)".*/skipped: \1: \2/'
        fail "tests were skipped"
    fi
    passed=$(grep -o '<testcase ' "$SCRATCH/junit.xml" | wc -l)
    [ "$passed" -gt 0 ] || fail "no test ran"
}

# One compiled test program with its suites; a skipped suite proves nothing. Its output is in $SCRATCH/unit.
unit() {
    make --no-print-directory build-tests
    CMOCKA_MESSAGE_OUTPUT=TAP ONCED_SOURCE=$ROOT "build-san/test/unit/test_$1" 2>&1 | tee "$SCRATCH/unit" || fail "test_$1 failed"
    if grep -q '^not ok\|# SKIP' "$SCRATCH/unit"; then
        fail "a test of test_$1 failed or was skipped"
    fi
}

# figures PYTHON: runs the expression over the list of figures that the tests left; f is the list.
figures() {
    python3 -c '
import json, sys
f = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
'"$1" "$ONCED_FIGURES"
}
