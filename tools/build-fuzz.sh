#!/bin/sh
# The build of everything with clang, without a warning: fuzzers, and what clang-tidy goes by.
set -eu
cd "$(dirname "$0")/.."
CC=clang sh tools/build.sh build-fuzz --buildtype=debugoptimized -Doptimization=1 -Dfuzzing=true -Db_sanitize=address,undefined \
    -Db_lundef=false -Dwerror=true
