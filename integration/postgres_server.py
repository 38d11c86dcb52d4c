"""A real PostgreSQL on loopback, as a process: of this machine, or of the package that scripts/system-packages has unpacked."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from integration.kafka_node import die_with_parent, free_ports
from integration.system_programs import SYSTEM, postgres_programs

START_S = 60
USER, DATABASE = "postgres", "orders"


class PostgresError(RuntimeError):
    """The server did not do what was asked; one line."""


@dataclass(frozen=True)
class Postgres:
    """A server that runs."""

    url: str


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    """A server with an empty database, for the length of a with block. PostgresError if it does not start."""
    directory = Path(tempfile.mkdtemp(prefix="kstream-postgres-"))  # not pytest's: the server may run as another user
    try:
        programs = _runnable(directory)
        options = _user(directory)
        (port,) = free_ports(1)
        data = directory / "data"
        _run([programs / "initdb", "-D", data, "-U", USER, "--auth=trust", "-E", "UTF8", "--locale=C", "--no-sync"], options)
        settings = {"listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": "", "fsync": "off"}
        command = [programs / "postgres", "-D", data, *(part for key, value in settings.items() for part in ("-c", f"{key}={value}"))]
        with open(directory / "log", "wb") as log:
            server = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, preexec_fn=die_with_parent, **options
            )
        try:
            yield Postgres(make_database(port, lambda: server.poll() is None, lambda: (directory / "log").read_text(errors="replace")))
        finally:
            server.send_signal(signal.SIGINT)  # ends its sessions, then itself
            server.wait(30)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _runnable(directory: Path) -> Path:
    """The folder of the programs. Another user may not be able to reach the unpacked ones: then they are copied."""
    programs = postgres_programs()
    if programs is None:
        raise PostgresError("PostgreSQL cannot be found")
    if os.geteuid() != 0 or not programs.is_relative_to(SYSTEM):
        return programs
    shutil.copytree(SYSTEM / "usr", directory / "usr", symlinks=True)
    return directory / programs.relative_to(SYSTEM)


def _user(directory: Path) -> dict[str, Any]:
    """Options of subprocess. The server refuses to run as root: it then runs as nobody, who owns the directory."""
    options: dict[str, Any] = {"cwd": directory}
    libraries = [str(path) for path in (SYSTEM / "usr" / "lib").glob("*-linux-gnu")]
    options["env"] = {"PATH": os.defpath, "LD_LIBRARY_PATH": os.pathsep.join(libraries), "LC_ALL": "C"}
    if os.geteuid() == 0:
        shutil.chown(directory, "nobody")
        options |= {"user": "nobody", "group": "nogroup", "extra_groups": []}
    return options


def _run(command: list[object], options: dict[str, Any]) -> None:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **options)
    if done.returncode:
        raise PostgresError(f"initdb failed: {(done.stderr.strip().splitlines() or ['no output'])[-1]}")


def make_database(port: int, lives: Callable[[], bool], said: Callable[[], str]) -> str:
    """Waits until the server answers, and makes the database. Returns its URL. PostgresError if it ends, or takes too long."""
    import psycopg

    end = time.monotonic() + START_S
    while True:
        try:
            with psycopg.connect(f"postgresql://{USER}@127.0.0.1:{port}/postgres", autocommit=True) as db:
                db.execute(f"CREATE DATABASE {DATABASE}")
            return f"postgresql://{USER}@127.0.0.1:{port}/{DATABASE}"
        except psycopg.OperationalError as e:
            if not lives() or time.monotonic() > end:
                raise PostgresError(f"PostgreSQL did not start: {said().strip()[-300:]}") from e
            time.sleep(0.1)
