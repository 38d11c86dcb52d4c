"""scripts/system-packages brings what is missing, or says it in one line, and never fails a test run."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "system-packages"
PLAIN = ("bash", "mktemp", "rm", "mkdir", "cp", "cat", "env")
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
    for name in ("prometheus", "promtool"):
        machine.add(name)
    machine.add("apt-get", "echo apt-get was called >&2; exit 1")
    done = machine.run()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "") and not machine.into.exists()


@pytest.mark.parametrize("apt", [False, True], ids=["no apt", "no network"])
def test_what_cannot_be_had_is_said_in_one_line(machine: Machine, apt: bool) -> None:
    if apt:
        machine.add("apt-get", "echo Could not resolve host >&2; exit 100")
        machine.add("dpkg-deb", "exit 2")
    done = machine.run()
    assert done.returncode == 0 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("system-packages: no prometheus and promtool") and "apt install prometheus" in line


def test_a_package_is_unpacked_and_not_installed_and_then_left_alone(machine: Machine) -> None:
    machine.add("apt-get", 'case "$*" in *" download prometheus") : > prometheus.deb ;; *) exit 1 ;; esac')
    unpack = 'mkdir -p "$3/usr/bin"; for name in prometheus promtool; do cp "$(dirname_of)/true" "$3/usr/bin/$name"; done'
    machine.add("true")
    machine.add("dpkg-deb", unpack.replace("$(dirname_of)", str(machine.bin)))
    done = machine.run()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert sorted(path.name for path in (machine.into / "usr" / "bin").iterdir()) == ["prometheus", "promtool"]
    machine.add("apt-get", "echo apt-get was called again >&2; exit 1")
    assert machine.run().stderr == ""
