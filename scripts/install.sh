#!/usr/bin/env bash
# usage: scripts/install.sh VENV
# Brings the virtual environment to what requirements.lock pins: by uv where it is there, else by venv and pip. One that is there
# is kept and completed, so that what runs from it goes on running. Says in one line what is missing.
set -euo pipefail
venv=$1

fail() {
    echo "install: $*" >&2
    exit 1
}

# Versions the lock file was resolved for; a newer Python may lack wheels.
fits() {
    "$1" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' > /dev/null 2>&1
}

python_of_this_machine() {
    local candidate
    for candidate in python3 python3.13 python3.12 python3.11 python3.10; do
        if fits "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    return 1
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Runs a command in silence; of a failure the whole output is shown, or the one line that matters.
run() {
    "$@" > "$log" 2>&1 && return
    local no_network='NewConnectionError|NameResolutionError|ConnectTimeoutError|ProxyError|Network is unreachable|Failed to fetch|dns error'
    if grep -qE "$no_network" "$log"; then
        fail "the package index cannot be reached: is there a network, or a proxy to be set (HTTPS_PROXY)?"
    fi
    cat "$log" >&2
    fail "'$*' failed, see above"
}

if [ -n "${PYTHON:-}" ]; then
    fits "$PYTHON" || fail "PYTHON=$PYTHON is no Python 3.10 to 3.13"
    python=$PYTHON
else
    python=$(python_of_this_machine) || fail "no Python 3.10 to 3.13 found on PATH; install one, or name it: make install PYTHON=/path/to/python"
fi

if fits "$venv/bin/python" && [ -z "${PYTHON:-}" ]; then
    echo "completing $venv ($("$venv/bin/python" --version 2>&1))"
else
    echo "installing into $venv ($("$python" --version 2>&1)), a minute or so …"
    rm -rf "$venv"
    if command -v uv > /dev/null 2>&1; then
        run uv venv --quiet --python "$python" "$venv"
    else
        "$python" -c 'import ensurepip' > /dev/null 2>&1 || fail "$python has no venv module; install it (Debian, Ubuntu: apt install python3-venv) or uv"
        run "$python" -m venv "$venv"
    fi
fi

# The lock file is whole: no resolving. No compiling: Python does that for what is imported.
if command -v uv > /dev/null 2>&1; then
    install=(uv pip install --quiet --python "$venv/bin/python" --no-deps)
else
    "$venv/bin/python" -m pip --version > /dev/null 2>&1 || run "$venv/bin/python" -m ensurepip
    install=("$venv/bin/python" -m pip install --quiet --disable-pip-version-check --retries 2 --no-deps --no-compile)
fi
run "${install[@]}" -r requirements.lock
run "${install[@]}" --no-build-isolation -e .
