#!/bin/sh
# What the end-to-end tests need beside Debian packages: a Python environment and the Node packages, both with locked versions.
# Does nothing when they are there and the lock files are unchanged.
set -eu
cd "$(dirname "$0")/../test/e2e"

if ! cmp -s requirements.txt .venv/requirements.txt; then
    rm -rf .venv
    echo "making test/e2e/.venv"
    python3 -m venv .venv
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.txt
    cp requirements.txt .venv/requirements.txt
fi

if ! cmp -s package-lock.json node_modules/.package-lock.copy; then
    echo "installing test/e2e/node_modules"
    npm ci --no-audit --no-fund --ignore-scripts --loglevel=error >/dev/null
    cp package-lock.json node_modules/.package-lock.copy
fi
