#!/bin/sh
# Everything without a warning of clang: fuzzers, and what clang-tidy goes by. The programs of the other tests run under gcc's sanitizers
# (make test): here they are read, which is all that clang's warnings need, and not built.
set -eu
cd "$(dirname "$0")/.."
# Meson takes ccache by itself only where no compiler is named
CC="$(command -v ccache || true) clang" ONLY='^(src|test/fuzz)/' sh tools/build.sh build-fuzz --buildtype=debugoptimized -Doptimization=1 -Dfuzzing=true \
    -Db_sanitize=address,undefined -Db_lundef=false -Dwerror=true
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! git ls-files 'test/*.c' ':!test/fuzz' ':!test/sweep' | xargs -P 2 -n 8 clang-tidy -p build-fuzz --quiet --checks='-*,clang-diagnostic-*,misc-misplaced-const' \
    >"$log" 2>/dev/null; then
    cat "$log"
    echo "clang warns of something in test/" >&2
    exit 1
fi
