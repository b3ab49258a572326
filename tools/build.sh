#!/bin/sh
# Configures a build folder when it is new or was configured with other options, and builds it: tools/build.sh FOLDER
# MESON-OPTIONS...  Quiet when all is well; on a failure the whole output is shown. ONLY: which outputs, by a regular expression.
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
elif [ ! -f "$folder/options" ]; then
    configure setup --reconfigure "$folder" "$@"
elif [ "$(cat "$folder/options")" != "$*" ]; then
    # Made by this script, with other options: anew, since Meson's reconfiguration takes some options only half (-Doptimization beside
    # --buildtype, c_link_args)
    rm -rf "$folder"
    configure setup "$folder" "$@"
fi
echo "$*" >"$folder/options"
targets=
if [ -n "${ONLY:-}" ]; then
    ninja -C "$folder" build.ninja >/dev/null
    targets=$(ninja -C "$folder" -t targets all | sed -n 's/: .*//p' | grep -E "$ONLY")
fi
# shellcheck disable=SC2086
if [ -t 1 ]; then
    ninja -C "$folder" $targets
elif ! ninja -C "$folder" $targets >"$log" 2>&1; then
    cat "$log" >&2
    exit 1
fi
