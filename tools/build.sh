#!/bin/sh
# Configures a build folder when it is new, and builds it: tools/build.sh FOLDER MESON-OPTIONS...
# Quiet when all is well; on a failure the whole output is shown.
set -eu
cd "$(dirname "$0")/.."
folder=$1
shift
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if [ ! -f "$folder/build.ninja" ]; then
    echo "configuring $folder"
    if ! meson setup "$folder" "$@" >"$log" 2>&1; then
        cat "$log" >&2
        exit 1
    fi
fi
if [ -t 1 ]; then
    ninja -C "$folder"
elif ! ninja -C "$folder" >"$log" 2>&1; then
    cat "$log" >&2
    exit 1
fi
