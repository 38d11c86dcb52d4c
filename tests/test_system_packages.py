"""scripts/system-packages brings what is missing, or says it in one line, and never fails a test run."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "system-packages"
PLAIN = ("bash", "mktemp", "rm", "mkdir", "cp", "cat", "env", "sed", "chmod", "dirname", "find", "sort", "ln")
"""The programs of any machine that the script may use."""


class Machine:
    """A machine with the plain programs, and those that a test adds as scripts."""

    def __init__(self, directory: Path) -> None:
        self.bin, self.into, self.root = directory / "bin", directory / "system", directory / "root"
        self.bin.mkdir()
        for name in PLAIN:
            found = shutil.which(name)
            assert found is not None
            (self.bin / name).symlink_to(found)

    def add(self, name: str, script: str = "") -> None:
        path = self.bin / name
        path.write_text(f"#!/usr/bin/env bash\n{script}\n")
        path.chmod(0o755)

    def run(self, user: int = 1000) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": str(self.bin), "SYSTEM_ROOT": str(self.root), "SYSTEM_USER": str(user)}
        return subprocess.run([str(SCRIPT), str(self.into)], env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_what_is_on_the_path_is_not_fetched(machine: Machine) -> None:
    for name in ("prometheus", "promtool", "initdb", "chromium"):
        machine.add(name)
    machine.add("apt-get", "echo apt-get was called >&2; exit 1")
    done = machine.run()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "") and not machine.into.exists()


def test_postgresql_is_found_where_debian_has_it_beside_the_path(machine: Machine) -> None:
    machine.add("apt-get", "exit 1")
    (programs := machine.root / "usr" / "lib" / "postgresql" / "15" / "bin").mkdir(parents=True)
    machine.add("initdb")
    (machine.bin / "initdb").rename(programs / "initdb")
    assert "initdb" not in machine.run().stderr


@pytest.mark.parametrize("apt", [False, True], ids=["no apt", "no network"])
def test_what_cannot_be_had_is_said_in_a_line_each(machine: Machine, apt: bool) -> None:
    if apt:
        for name in ("apt-get", "apt-cache"):
            machine.add(name, "echo Could not resolve host >&2; exit 100")
        machine.add("dpkg-deb", "exit 2")
    done = machine.run()
    assert done.returncode == 0 and done.stdout == ""
    prometheus, postgres, chromium = done.stderr.splitlines()
    assert prometheus.startswith("system-packages: no prometheus and promtool") and "apt install prometheus" in prometheus
    assert postgres.startswith("system-packages: no initdb and postgres") and "apt install postgresql" in postgres
    assert chromium.startswith("system-packages: no chromium") and "apt install chromium" in chromium


APT_CACHE = "echo postgresql; echo '  Depends: postgresql-15'; echo '  Suggests: postgresql-doc'"
APT_GET = 'for last; do :; done; case "$last" in prometheus|postgresql-15|libpq5) : > "$last.deb" ;; *) exit 1 ;; esac'
DPKG_DEB = """
case "$2" in
    *prometheus.deb) into="$3/usr/bin" names="prometheus promtool" ;;
    *postgresql-15.deb) into="$3/usr/lib/postgresql/15/bin" names="initdb postgres" ;;
    *libpq5.deb) into="$3/usr/lib/x86_64-linux-gnu" names="libpq.so.5" ;;
esac
mkdir -p "$into"
for name in $names; do cp "$(type -P true)" "$into/$name"; done
"""


def test_packages_are_unpacked_and_not_installed_and_then_left_alone(machine: Machine) -> None:
    machine.add("chromium")
    for name, script in {"true": "exit 0", "apt-cache": APT_CACHE, "apt-get": APT_GET, "dpkg-deb": DPKG_DEB}.items():
        machine.add(name, script)
    done = machine.run()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    unpacked = sorted(path.name for path in machine.into.rglob("*") if path.is_file())
    assert unpacked == ["initdb", "libpq.so.5", "postgres", "prometheus", "promtool"]
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
    for name in ("prometheus", "promtool", "initdb"):
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
    for name in ("prometheus", "promtool", "initdb"):
        machine.add(name)
    machine.add("apt-get", SIMULATED)
    machine.add("shell", "exit 127")
    machine.add("dpkg-deb", UNPACKED.replace("BIN", str(machine.bin)))
    done = machine.run()
    assert done.returncode == 0 and done.stderr.startswith("system-packages: no chromium")
    assert not (machine.into / "usr" / "bin" / "chromium").exists()


DOCKER_SIMULATED = """case "$*" in
*" install --simulate "*" docker.io iptables") echo "Inst runc (1)"; echo "Inst docker.io (1)"; echo "Inst iptables (1)" ;;
*" install --simulate "*" docker-compose") echo "Inst docker-compose (1)" ;;
*" download "*) while [ "$1" != download ]; do shift; done; shift; for name; do : > "$name.deb"; done ;;
*) exit 1 ;;
esac"""
DOCKER_UNPACKED = """case "$2" in
*docker.io.deb) into="$3/usr/sbin" names=dockerd ;;
*iptables.deb) into="$3/usr/sbin" names="iptables-nft ip6tables-nft" ;;
*mmdebstrap.deb) into="$3/usr/bin" names=mmdebstrap ;;
*docker-compose.deb) into="$3/usr/bin" names=docker-compose ;;
*) exit 0 ;;
esac
mkdir -p "$into"
for name in $names; do cp "$(type -P true)" "$into/$name"; done"""


def with_all_but_docker(machine: Machine) -> None:
    for name in ("prometheus", "promtool", "initdb", "chromium"):
        machine.add(name)


def test_for_root_docker_is_unpacked_with_what_it_runs_and_an_iptables(machine: Machine) -> None:
    with_all_but_docker(machine)
    for name, script in {"true": "exit 0", "apt-get": DOCKER_SIMULATED, "dpkg-deb": DOCKER_UNPACKED}.items():
        machine.add(name, script)
    assert machine.run().stderr == "" and not machine.into.exists()
    done = machine.run(user=0)
    unpacked = {path.name: path for path in machine.into.rglob("*") if not path.is_dir()}
    assert {"dockerd", "iptables", "ip6tables", "mmdebstrap", "docker-compose"} <= unpacked.keys()
    assert unpacked["iptables"].resolve().name == "iptables-nft"
    assert (done.returncode, done.stdout) == (0, "") and "no dockerd" not in done.stderr and "no mmdebstrap" not in done.stderr


def test_for_root_what_cannot_be_had_of_docker_is_said_in_a_line_each(machine: Machine) -> None:
    with_all_but_docker(machine)
    done = machine.run(user=0)
    docker, images, compose = done.stderr.splitlines()
    assert done.returncode == 0 and docker.startswith("system-packages: no dockerd") and "apt install docker.io" in docker
    assert images.startswith("system-packages: no mmdebstrap") and compose.startswith("system-packages: no docker-compose")
