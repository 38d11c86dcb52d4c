"""ZooKeeper, PostgreSQL and the S3 server as containers, behind the classes of the processes."""

from __future__ import annotations

import os
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from integration.containers.container import Container
from integration.containers.daemon import ContainerError
from integration.containers.spark import checkout, own_files
from integration.kafka_node import free_ports
from integration.postgres_server import Postgres, PostgresError, make_database
from integration.s3_server import S3Process
from integration.zookeeper_server import ZooKeeper, ZooKeeperError

_START_S = 90


class ContainerZooKeeper(ZooKeeper):
    """The server in a container. `remove` it when done."""

    def __init__(self, image: str, directory: Path) -> None:
        super().__init__(directory)
        environment = {
            "ZOO_TICK_TIME": 500, "ZOO_CFG_EXTRA": "minSessionTimeout=1000 maxSessionTimeout=60000", "ZOO_MAX_CLIENT_CNXNS": 0,
            "ZOO_4LW_COMMANDS_WHITELIST": "srvr", "ZOO_ADMINSERVER_ENABLED": "false", "ZOO_STANDALONE_ENABLED": "true",
        }  # fmt: skip
        self._container = Container(image, environment=environment, ports={2181: self._port})

    @property
    def pid(self) -> int:
        return self._container.pid

    def start(self) -> None:
        try:
            self._container.start()
        except ContainerError as e:
            raise ZooKeeperError(str(e)) from e
        end = time.monotonic() + _START_S
        while not self._serves():
            if time.monotonic() > end or not self._container.running:
                raise ZooKeeperError(f"ZooKeeper did not come up in a container of {self._container.image}")
            time.sleep(0.05)

    def kill9(self) -> None:
        self._container.kill()

    def stop(self) -> None:
        self._container.stop()

    def remove(self) -> None:
        self._container.remove()


@contextmanager
def zookeeper_container(image: str, directory: Path) -> Iterator[ContainerZooKeeper]:
    """A server for the length of a with block."""
    server = ContainerZooKeeper(image, directory)
    try:
        server.start()
        yield server
    finally:
        server.remove()


@contextmanager
def postgres_container(image: str) -> Iterator[Postgres]:
    """A server with an empty database, for the length of a with block. PostgresError if it does not start."""
    (port,) = free_ports(1)
    server = Container(image, environment={"POSTGRES_HOST_AUTH_METHOD": "trust"}, ports={5432: port})
    try:
        try:
            server.start()
            yield Postgres(make_database(port, lambda: server.running, server.said))
        except ContainerError as e:
            raise PostgresError(str(e)) from e
    finally:
        server.remove()


class S3Container(S3Process):
    """The S3 server of the suite in a container, told by lines of its standard input; it ends when that ends."""

    def __init__(self, image: str) -> None:
        (port,) = free_ports(1)
        given = {
            "--name": [f"kstream-s3-{uuid.uuid4().hex[:8]}"],
            "--user": [f"{os.getuid()}:{os.getgid()}"],
            "--publish": [f"127.0.0.1:{port}:{port}"],
            "--volume": [f"{path}:{path}:ro" for path in checkout()],
            "--env": [f"{key}={value}" for key, value in own_files().items()],
            "--entrypoint": ["python3"],
        }
        options = [part for key, values in given.items() for value in values for part in (key, value)]
        server = ["-m", "integration.s3_server", "0.0.0.0", str(port)]
        super().__init__(["docker", "run", "--rm", "--interactive", *options, image, *server])


@contextmanager
def s3_container(image: str) -> Iterator[S3Process]:
    """The server for the length of a with block."""
    try:
        s3 = S3Container(image)
    except (OSError, RuntimeError, subprocess.SubprocessError) as e:
        raise ContainerError(f"no S3 server in a container of {image}: {e}") from e
    try:
        yield s3
    finally:
        s3.stop()
