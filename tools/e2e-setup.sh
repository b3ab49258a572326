#!/bin/sh
# What the end-to-end tests need beside Debian packages: a Python environment and the Node packages (also a Node that is new
# enough for MCP's conformance suite), all with locked versions. Does nothing when they are there and the lock files are unchanged.
set -eu
cd "$(dirname "$0")/../test/e2e"

if ! cmp -s requirements.txt .venv/requirements.txt; then
    rm -rf .venv
    echo "making test/e2e/.venv"
    python3 -m venv .venv
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.txt
    cp requirements.txt .venv/requirements.txt
fi

if ! cmp -s ../mcp/requirements-langchain.txt ../mcp/.langchain/requirements.txt; then
    rm -rf ../mcp/.langchain
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps --target ../mcp/.langchain \
        -r ../mcp/requirements-langchain.txt
    cp ../mcp/requirements-langchain.txt ../mcp/.langchain/requirements.txt
fi

node_packages() {
    cmp -s "$1/package-lock.json" "$1/node_modules/.package-lock.copy" && return
    echo "installing $1/node_modules"
    (cd "$1" && npm ci --no-audit --no-fund --ignore-scripts --loglevel=error >/dev/null)
    cp "$1/package-lock.json" "$1/node_modules/.package-lock.copy"
}
cd ..
node_packages e2e
node_packages mcp
node_packages webhooks
