"""scripts/system-packages brings what is missing, or says it in one line, and never fails a test run."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "system-packages"
PLAIN = ("bash", "mktemp", "rm", "mkdir", "cp", "cat", "env", "sed", "chmod", "dirname", "find", "sort")
"""The programs of any machine that the script may use."""


class Machine:
    """A machine with the plain programs, and those that a test adds as scripts."""

    def __init__(self, directory: Path) -> None:
        self.bin, self.into = directory / "bin", directory / "system"
        self.bin.mkdir()
        for name in PLAIN:
            found = shutil.which(name)
            assert found is not None
            (self.bin / name).symlink_to(found)

    def add(self, name: str, script: str = "") -> None:
        path = self.bin / name
        path.write_text(f"#!/usr/bin/env bash\n{script}\n")
        path.chmod(0o755)

    def run(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run([str(SCRIPT), str(self.into)], env={"PATH": str(self.bin)}, capture_output=True, text=True, check=False)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_what_is_on_the_path_is_not_fetched(machine: Machine) -> None:
    for name in ("prometheus", "promtool", "chromium"):
        machine.add(name)
    machine.add("apt-get", "echo apt-get was called >&2; exit 1")
    done = machine.run()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "") and not machine.into.exists()


@pytest.mark.parametrize("apt", [False, True], ids=["no apt", "no network"])
def test_what_cannot_be_had_is_said_in_a_line_each(machine: Machine, apt: bool) -> None:
    if apt:
        machine.add("apt-get", "echo Could not resolve host >&2; exit 100")
        machine.add("dpkg-deb", "exit 2")
    done = machine.run()
    assert done.returncode == 0 and done.stdout == ""
    prometheus, chromium = done.stderr.splitlines()
    assert prometheus.startswith("system-packages: no prometheus and promtool") and "apt install prometheus" in prometheus
    assert chromium.startswith("system-packages: no chromium") and "apt install chromium" in chromium


def test_a_package_is_unpacked_and_not_installed_and_then_left_alone(machine: Machine) -> None:
    machine.add("chromium")
    machine.add("apt-get", 'case "$*" in *" download prometheus") : > prometheus.deb ;; *) exit 1 ;; esac')
    unpack = 'mkdir -p "$3/usr/bin"; for name in prometheus promtool; do cp "$(dirname_of)/true" "$3/usr/bin/$name"; done'
    machine.add("true")
    machine.add("dpkg-deb", unpack.replace("$(dirname_of)", str(machine.bin)))
    done = machine.run()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert sorted(path.name for path in (machine.into / "usr" / "bin").iterdir()) == ["prometheus", "promtool"]
    machine.add("apt-get", "echo apt-get was called again >&2; exit 1")
    assert machine.run().stderr == ""


SIMULATED = """case "$*" in
*" install --simulate "*) echo "Inst liblacking (1)"; echo "Inst libolder [1] (2)"; echo "Inst chromium-headless-shell (1)" ;;
*" download liblacking chromium-headless-shell") : > lacking.deb; : > shell.deb ;;
*) exit 1 ;;
esac"""
UNPACKED = """case "$2" in
*lacking.deb) mkdir -p "$3/usr/lib/some/where"; echo > "$3/usr/lib/some/where/liblacking.so" ;;
*) mkdir -p "$3/usr/bin" "$3/usr/lib/chromium"; cp BIN/shell "$3/usr/lib/chromium/chromium-headless-shell" ;;
esac"""


def test_chromium_is_unpacked_with_the_libraries_that_are_lacking_and_finds_them(machine: Machine) -> None:
    """What is installed in another version is left as it is: only the libraries that an installation would add are fetched."""
    for name in ("prometheus", "promtool"):
        machine.add(name)
    machine.add("apt-get", SIMULATED)
    machine.add("shell", 'echo "$LD_LIBRARY_PATH" "$@"')
    machine.add("dpkg-deb", UNPACKED.replace("BIN", str(machine.bin)))
    done = machine.run()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    command = [str(machine.into / "usr" / "bin" / "chromium"), "--headless"]
    started = subprocess.run(command, env={"PATH": str(machine.bin)}, capture_output=True, text=True, check=True)
    assert started.stdout == f"{machine.into}/usr/lib/some/where --headless\n"
    machine.add("apt-get", "echo apt-get was called again >&2; exit 1")
    assert machine.run().stderr == ""


def test_a_chromium_that_does_not_run_here_is_taken_away_again(machine: Machine) -> None:
    for name in ("prometheus", "promtool"):
        machine.add(name)
    machine.add("apt-get", SIMULATED)
    machine.add("shell", "exit 127")
    machine.add("dpkg-deb", UNPACKED.replace("BIN", str(machine.bin)))
    done = machine.run()
    assert done.returncode == 0 and done.stderr.startswith("system-packages: no chromium")
    assert not (machine.into / "usr" / "bin" / "chromium").exists()
