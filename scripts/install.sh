#!/usr/bin/env bash
# usage: scripts/install.sh VENV
# Builds the virtual environment: uv where it is there, else venv and pip. Says in one line what is missing.
set -euo pipefail
venv=$1

fail() {
    echo "install: $*" >&2
    exit 1
}

python_of_this_machine() {
    local candidate
    for candidate in "${PYTHON:-}" python3 python3.13 python3.12 python3.11 python3.10; do
        [ -n "$candidate" ] || continue
        command -v "$candidate" > /dev/null 2>&1 || continue
        # Versions the lock file was resolved for; a newer Python may lack wheels.
        "$candidate" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' 2> /dev/null || continue
        echo "$candidate"
        return
    done
    return 1
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT

run() {
    "$@" > "$log" 2>&1 && return
    if grep -qiE 'name resolution|connection|network|unreachable|timed out|dns|Failed to fetch' "$log"; then
        fail "no package index can be reached (no network, or a proxy is needed): $(grep -iE 'resol|connect|network|fetch' "$log" | head -n 1)"
    fi
    cat "$log" >&2
    fail "'$*' failed, see above"
}

python=$(python_of_this_machine) || fail "no Python 3.10 to 3.13 found on PATH; install one, or name it: make install PYTHON=/path/to/python"
echo "installing into $venv ($("$python" --version 2>&1)), a minute or so …"
if command -v uv > /dev/null 2>&1; then
    run uv venv --quiet --clear --python "$python" "$venv"
    run uv pip install --quiet --python "$venv/bin/python" -r requirements.lock
    run uv pip install --quiet --python "$venv/bin/python" --no-deps --no-build-isolation -e .
else
    run "$python" -m venv --clear "$venv"
    run "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r requirements.lock
    run "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
fi
