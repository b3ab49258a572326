#!/bin/sh
# Runs a command with a PostgreSQL server of its own: tools/with-postgres.sh COMMAND...
# A new cluster in a temporary folder, reached by a socket there only; never the system's. The command finds its URL in
# ONCED_POSTGRES and the programs of the server in ONCED_POSTGRES_BIN; afterwards all is gone. Settings: POSTGRES_OPTIONS
# (default: no fsync, which is for tests that do not pull the plug). Exit status of the command; 77 (skipped) where no
# server is installed.
set -eu

bin=
for folder in $(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V -r) $(pg_config --bindir 2>/dev/null || true); do
    [ -x "$folder/initdb" ] && [ -x "$folder/pg_ctl" ] && bin=$folder && break
done
if [ -z "$bin" ]; then
    echo "tools/with-postgres.sh: no PostgreSQL server is installed (Debian: postgresql-15)" >&2
    exit 77
fi

# PostgreSQL refuses to run as root. It ends with this script, however that ends.
as_server() {
    if [ "$(id -u)" -eq 0 ]; then
        exec setpriv --reuid=postgres --regid=postgres --init-groups --inh-caps=-all --pdeathsig QUIT "$@"
    else
        exec setpriv --pdeathsig QUIT "$@"
    fi
}

folder=$(mktemp -d /tmp/onced-pg-XXXXXX)
command=
server=
stop() {
    [ -z "$command" ] || kill "$command" 2>/dev/null || true
    [ -z "$server" ] || kill -QUIT "$server" 2>/dev/null || true
    [ -z "$server" ] || wait "$server" 2>/dev/null || true
    rm -rf "$folder"
}
trap stop EXIT
trap 'exit 143' TERM
trap 'exit 130' INT
trap 'exit 129' HUP
[ "$(id -u)" -ne 0 ] || chown postgres: "$folder"

cd "$folder"
if ! (as_server "$bin/initdb" -D "$folder/data" -U onced -A trust -E UTF8 --locale=C --no-sync) >"$folder/log" 2>&1; then
    cat "$folder/log" >&2
    exit 1
fi
options=${POSTGRES_OPTIONS:--c fsync=off -c full_page_writes=off -c autovacuum=off -c shared_buffers=32MB}
# shellcheck disable=SC2086
(as_server "$bin/postgres" -D "$folder/data" -k "$folder" -c "listen_addresses=" -p 5432 $options) >>"$folder/log" 2>&1 &
server=$!
tries=0
until "$bin/pg_isready" -q -h "$folder" -p 5432; do
    tries=$((tries + 1))
    if [ "$tries" -gt 600 ] || ! kill -0 "$server" 2>/dev/null; then
        cat "$folder/log" >&2
        exit 1
    fi
    sleep 0.1
done
cd - >/dev/null

export ONCED_POSTGRES="postgresql://onced@/postgres?host=$folder&port=5432"
export ONCED_POSTGRES_BIN="$bin"
status=0
"$@" &
command=$!
wait "$command" || status=$?
command=
exit "$status"
