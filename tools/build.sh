#!/bin/sh
# Configures a build folder when it is new or was configured with other options, and builds it: tools/build.sh FOLDER
# MESON-OPTIONS...  Quiet when all is well; on a failure the whole output is shown.
set -eu
cd "$(dirname "$0")/.."
folder=$1
shift
# A hundred programs are linked, most of them with sanitizers: gold takes half as long as the default linker. What is shipped
# (with link-time optimisation) is linked by the default one.
case " $* " in
*" -Db_lto=true "*) ;;
*) ! command -v ld.gold >/dev/null || export CC_LD="${CC_LD:-gold}" ;;
esac
log=$(mktemp)
trap 'rm -f "$log"' EXIT
configure() {
    echo "configuring $folder"
    if ! meson "$@" >"$log" 2>&1; then
        cat "$log" >&2
        exit 1
    fi
}
if [ ! -f "$folder/build.ninja" ]; then
    configure setup "$folder" "$@"
elif [ "$(cat "$folder/options" 2>/dev/null)" != "$*" ]; then
    configure setup --reconfigure "$folder" "$@"
fi
echo "$*" >"$folder/options"
if [ -t 1 ]; then
    ninja -C "$folder"
elif ! ninja -C "$folder" >"$log" 2>&1; then
    cat "$log" >&2
    exit 1
fi
