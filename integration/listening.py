"""Who listens where: the sockets of processes that wait for connections by TCP, as the kernel lists them, and the processes of a job."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from integration.received.processes import block_stores, children, executors

_LISTEN = "0A"
_INODE = re.compile(r"socket:\[(\d+)\]")


class Listening(NamedTuple):
    """A socket that waits for connections: what its process is to the job, and its address."""

    process: str
    host: str
    port: int


def listening_of_job(application: str) -> set[Listening]:
    """All sockets of a job that wait for connections now. Call it in its driver, under spark-submit."""
    return {Listening(kind, *place) for kind, pid in processes_of_job(application) for place in listening(pid)}


def processes_of_job(application: str) -> Iterator[tuple[str, int]]:
    """What each process of a job is, by the words of docs/security.md, and its pid."""
    yield "driver", os.getpid()
    yield "driver's JVM", os.getppid()
    stores = set(block_stores(application).values())
    for store in stores:
        yield "block store of an executor", store
    for jvm in executors(application).values():
        yield "executor's JVM", jvm
        for pid in children(jvm):
            if pid not in stores:
                yield "executor's Python", pid


def listening(pid: int) -> set[tuple[str, int]]:
    """Host and port of each socket of a process that waits for connections; none of a process that has ended."""
    sockets: set[str] = set()
    with suppress(OSError):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                if found := _INODE.fullmatch(os.readlink(f"/proc/{pid}/fd/{fd}")):
                    sockets.add(found[1])
    return {place for table in ("tcp", "tcp6") for inode, place in _waiting(Path("/proc/net") / table) if inode in sockets}


def _waiting(table: Path) -> Iterator[tuple[str, tuple[str, int]]]:
    """Inode, host and port of each socket of a table that waits for connections."""
    for line in table.read_text().splitlines()[1:]:
        words = line.split()
        if words[3] == _LISTEN:
            host, _, port = words[1].partition(":")
            yield words[9], (_address(host), int(port, 16))


def _address(words: str) -> str:
    """The address that the kernel writes as hexadecimal words of 32 bits, each in the order of the machine. IPv4 in IPv6 is IPv4."""
    address = ipaddress.ip_address(b"".join(bytes.fromhex(words[i : i + 8])[::-1] for i in range(0, len(words), 8)))
    mapped = getattr(address, "ipv4_mapped", None)
    return "0.0.0.0" if str(address) == "::" else str(mapped or address)
