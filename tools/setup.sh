#!/bin/sh
# Installs the Debian packages that the named parts of the project need and that are missing: tools/setup.sh PART...
# Parts: build test lint demo bench model cache. Says nothing when all are there. Every package is named in this file and nowhere else.
#
# "package" must be installed; "package:command" is also satisfied by a command of another origin.
set -eu

packages_of() {
    case $1 in
    build)
        echo gcc:cc libc6-dev meson:meson ninja-build:ninja pkg-config:pkg-config \
            libcurl4-openssl-dev libfyaml-dev libjq-dev libmicrohttpd-dev libpcre2-dev libpq-dev libsqlite3-dev libssl-dev \
            libutf8proc-dev libuv1-dev
        ;;
    test)
        echo libcmocka-dev ca-certificates python3:python3 python3-venv:venv nodejs:node npm:npm libsqlite3-dev \
            exim4-daemon-light:mail-server dovecot-imapd:dovecot postgresql-15:postgres-server faketime:faketime
        ;;
    lint)
        echo clang:clang clang-format:clang-format clang-tidy:clang-tidy libclang-rt-14-dev:clang-rt llvm:llvm-symbolizer
        ;;
    demo)
        echo python3:python3
        ;;
    bench)
        echo libcmocka-dev python3:python3 nginx-light:nginx wrk:wrk postgresql-15:postgres-server
        ;;
    model)
        echo spin:spin gcc:gcc libc6-dev
        ;;
    cache)
        echo ccache:ccache
        ;;
    *)
        echo "tools/setup.sh: there is no part '$1'; parts: build test lint demo bench model cache" >&2
        exit 2
        ;;
    esac
}

# Things that are neither a package nor a program's name.
have_command() {
    case $1 in
    venv) python3 -c 'import venv, ensurepip' >/dev/null 2>&1 ;;
    clang-rt) ls "$(clang -print-resource-dir 2>/dev/null)"/lib/*/libclang_rt.fuzzer-*.a >/dev/null 2>&1 ;;
    # Debian has room for one mail server: where there is another one, its tests are skipped.
    mail-server) [ -x /usr/sbin/exim4 ] || [ -e /usr/sbin/sendmail ] ;;
    postgres-server) ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 ;;
    dovecot) [ -x /usr/sbin/dovecot ] ;;
    nginx) command -v nginx >/dev/null 2>&1 || [ -x /usr/sbin/nginx ] ;;
    *) command -v "$1" >/dev/null 2>&1 ;;
    esac
}

installed() {
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

missing=
for part in "$@"; do
    list=$(packages_of "$part")
    for entry in $list; do
        package=${entry%%:*}
        command=${entry#"$package"}
        command=${command#:}
        if [ -n "$command" ] && have_command "$command"; then
            continue
        fi
        if command -v dpkg-query >/dev/null 2>&1 && installed "$package"; then
            continue
        fi
        case " $missing " in
        *" $package "*) ;;
        *) missing="$missing $package" ;;
        esac
    done
done
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null 2>&1; then
    # Not Debian: the libraries may be there under other names, which Meson will find or not.
    echo "tools/setup.sh: this is not a Debian system; if the build fails, install what Debian calls:$missing" >&2
    exit 0
fi

as_root=
if [ "$(id -u)" -ne 0 ]; then
    if command -v sudo >/dev/null 2>&1; then
        as_root=sudo
    else
        echo "tools/setup.sh: these packages are missing, and neither root nor sudo is there to install them:" >&2
        echo "  apt-get install$missing" >&2
        exit 1
    fi
fi

echo "Installing Debian packages:$missing"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() {
    # shellcheck disable=SC2086
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Dpkg::Use-Pty=0 "$@" >"$log" 2>&1
}
# The servers are for tests, which start their own: Debian's scripts shall start none, neither now nor with the machine.
services=
for package in $missing; do
    case $package in
    exim4-daemon-light) services="$services exim4.service" ;;
    postgresql-15) services="$services postgresql.service" ;;
    dovecot-imapd) services="$services dovecot.service dovecot.socket" ;;
    esac
done
policy=/usr/sbin/policy-rc.d
if [ -n "$services" ] && [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' | $as_root sh -c "cat >$policy && chmod 755 $policy"
    trap 'rm -f "$log"; $as_root rm -f "$policy"' EXIT
fi
# An old list of packages names files that are gone; a list that cannot be renewed may still do.
apt update || echo "tools/setup.sh: apt-get update failed; going on with the package lists that are there" >&2
# shellcheck disable=SC2086
if ! apt install --no-install-recommends --no-remove $missing; then
    cat "$log" >&2
    echo "tools/setup.sh: installing failed; the lines above say why" >&2
    exit 1
fi
if [ -n "$services" ] && command -v systemctl >/dev/null 2>&1; then
    # shellcheck disable=SC2086
    $as_root systemctl disable $services >/dev/null 2>&1 || true
fi
