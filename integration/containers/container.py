"""One container of a run, made by testcontainers, and the network that containers of a run share.

All that a run makes is removed when the run ends, however it ends: by a process of ours, since testcontainers' helper for it is an image
of its own, which cannot be had everywhere.
"""

from __future__ import annotations

import ipaddress
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

os.environ["TESTCONTAINERS_RYUK_DISABLED"] = "true"  # testcontainers reads it when it is imported
import docker
from docker.errors import DockerException, NotFound
from docker.types import EndpointConfig
from requests.exceptions import RequestException
from testcontainers.core.container import DockerContainer
from testcontainers.core.labels import LABEL_SESSION_ID, SESSION_ID
from testcontainers.core.network import Network

from integration.containers.daemon import ContainerError

LOOPBACK = "127.0.0.1"


class ContainerNetwork:
    """A bridge of Docker's. Each container has an alias there, and an address that stays. `remove` it when its containers are gone.

    Containers know each other from the files of hosts that they are started with: Docker's own answers about one that is dead or cut off
    come from the machine's servers of names, which may take long to answer, or never do.
    """

    def __init__(self) -> None:
        remove_at_the_end()
        with one_line("a network"):
            subnet = self._free_subnet()
            self.gateway = str(subnet[1])
            pool = {"Subnet": str(subnet), "Gateway": self.gateway}
            self._network = Network(docker_network_kw={"driver": "bridge", "ipam": {"Driver": "default", "Config": [pool]}}).create()
        self._free = iter(subnet.hosts())
        next(self._free)  # the gateway's
        self.hosts: dict[str, str] = {}
        """Alias → address."""

    @property
    def name(self) -> str:
        return self._network.name

    def address(self, alias: str) -> str:
        """A new one, for this alias."""
        self.hosts[alias] = str(next(self._free))
        return self.hosts[alias]

    def connect(self, identity: str, address: str, alias: str) -> None:
        with one_line(alias):
            self._unwrapped.connect(identity, ipv4_address=address, aliases=[alias])

    def disconnect(self, identity: str) -> None:
        with one_line(identity):
            self._unwrapped.disconnect(identity, force=True)

    def remove(self) -> None:
        with one_line("a network"):
            self._network.remove()

    @property
    def _unwrapped(self) -> Any:
        return self._network._unwrap_network

    @staticmethod
    def _free_subnet() -> ipaddress.IPv4Network:
        """One that Docker finds free: it lets addresses be chosen only where the subnet was."""
        probe = Network(docker_network_kw={"driver": "bridge"}).create()
        try:
            found = probe._unwrap_network
            found.reload()
            attributes: Any = found.attrs
            return ipaddress.IPv4Network(attributes["IPAM"]["Config"][0]["Subnet"])
        finally:
            probe.remove()


class Container:
    """A container that may be stopped, killed, cut off and started again, with its files. `remove` it when done.

    `ports`: number inside → number on 127.0.0.1. `mounts` are folders at the same path inside; those of `written` may be written
    to. On a network its host name is the alias.
    """

    def __init__(
        self,
        image: str,
        *command: str,
        environment: Mapping[str, object] | None = None,
        ports: Mapping[int, int] | None = None,
        mounts: Sequence[Path] = (),
        written: Sequence[Path] = (),
        network: ContainerNetwork | None = None,
        alias: str = "",
        **more: Any,
    ) -> None:
        remove_at_the_end()
        self.image, self.alias = image, alias
        self._network = network
        self._address = network.address(alias) if network else ""
        self._said_before = ""
        self._made: Any = None
        self._command, self._environment, self._ports = command, environment or {}, ports or {}
        modes = [*((path, "ro") for path in mounts), *((path, "rw") for path in written)]
        self._volumes = {str(path): {"bind": str(path), "mode": mode} for path, mode in modes}
        self._more = more

    # -- life

    def start(self) -> None:
        """The first time, or again with its files; does not wait until it serves."""
        with one_line(self.image):
            if self._made is None:
                self._make()
            else:
                self._said_before = self._all_it_said()
                self._made.start()

    def stop(self, seconds: int = 15) -> int:
        """SIGTERM, and SIGKILL after so many seconds; its exit code."""
        with one_line(self.image):
            self._made.stop(timeout=seconds)
            return int(self._made.wait()["StatusCode"])

    def kill(self) -> None:
        """SIGKILL; returns when all its processes are gone."""
        with one_line(self.image), suppress(NotFound):
            if self.running:
                self._made.kill("SIGKILL")
            self._made.wait()

    def remove(self) -> None:
        """Ends it by SIGKILL and removes it with its files. Twice is fine."""
        made, self._made = self._made, None
        if made is not None:
            with one_line(self.image), suppress(NotFound):
                made.remove(force=True, v=True)

    @property
    def running(self) -> bool:
        return self._state()["Running"]

    @property
    def pid(self) -> int:
        """Of its first process, as the machine sees it."""
        return self._state()["Pid"]

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        state = self._state()
        return None if state["Running"] else state["ExitCode"]

    # -- network

    def cut_off(self) -> None:
        """Takes it off its network, as `docker network disconnect` does."""
        assert self._network is not None
        self._network.disconnect(self._made.id)

    def let_back(self) -> None:
        """Puts it on its network again, at its address."""
        assert self._network is not None
        self._network.connect(self._made.id, self._address, self.alias)

    # -- output

    def said(self) -> str:
        """What it has said since its newest start."""
        return self._all_it_said()[len(self._said_before) :]

    def wait_until_it_says(self, words: str, seconds: float, what: str) -> None:
        """ContainerError, which tells its last words, if it ends first or takes longer."""
        end = time.monotonic() + seconds
        while words not in (said := self.said()):
            if not self.running or time.monotonic() > end:
                lines = [line.strip() for line in said.splitlines() if line.strip()]
                telling = next((line for line in lines if "ERROR" in line or "Exception" in line), lines[-1] if lines else "no output")
                raise ContainerError(f"{what} did not start in a container of {self.image}: {telling}")
            time.sleep(0.1)

    def _all_it_said(self) -> str:
        with one_line(self.image):
            return self._made.logs().decode(errors="replace")

    def _state(self) -> dict[str, Any]:
        if self._made is None:
            return {"Running": False, "Pid": 0, "ExitCode": None}
        with one_line(self.image):
            self._made.reload()
            return self._made.attrs["State"]

    def _make(self) -> None:
        new = DockerContainer(self.image).with_envs(**{key: str(value) for key, value in self._environment.items()})
        if self._command:
            new.with_command(list(self._command))
        for inside, outside in self._ports.items():
            new.ports[f"{inside}/tcp"] = (LOOPBACK, outside)  # pyright: ignore  docker takes the address, testcontainers does not declare it
        new.volumes = self._volumes  # pyright: ignore
        more = dict(self._more)
        if self._network is not None:
            place = EndpointConfig(docker.constants.DEFAULT_DOCKER_API_VERSION, aliases=[self.alias], ipv4_address=self._address)
            others = {alias: address for alias, address in self._network.hosts.items() if alias != self.alias}
            more |= {"hostname": self.alias, "extra_hosts": others}
            more |= {"network": self._network.name, "networking_config": {self._network.name: place}}
        try:
            new.with_kwargs(**more).start()
        finally:
            self._made = new._container  # also one that was made and could not be started


@contextmanager
def one_line(what: str) -> Iterator[None]:
    """Docker's errors as a ContainerError of one line."""
    try:
        yield
    except NotFound:
        raise
    except (DockerException, RequestException) as e:
        said = " ".join(str(getattr(e, "explanation", None) or e).split())
        raise ContainerError(f"Docker cannot run {what}: {said}") from e


@cache
def remove_at_the_end() -> object:
    """Starts the process that removes what this run makes, when this run is gone. Once is enough."""
    command = [sys.executable, "-m", "integration.containers.container", SESSION_ID]
    root = Path(__file__).resolve().parents[2]
    return subprocess.Popen(command, stdin=subprocess.PIPE, cwd=root, start_new_session=True)  # it reads until nobody holds the other end


def remove_all(session: str) -> None:
    """Removes the containers and networks of this session of testcontainers."""
    label = {"label": f"{LABEL_SESSION_ID}={session}"}
    with suppress(DockerException, RequestException):  # a daemon that has ended has ended them
        client: Any = docker.from_env()
        for container in client.containers.list(all=True, filters=label):
            with suppress(NotFound):
                container.remove(force=True, v=True)
        for network in client.networks.list(filters=label):
            network.remove()


if __name__ == "__main__":
    sys.stdin.read()
    remove_all(sys.argv[1])
