"""The same broker as a container: `pytest integration --broker=container`, by testcontainers.

The image is apache/kafka's, or one that takes its settings the same way (scripts/build_kafka_image.sh builds one where nothing can be
pulled). testcontainers' helper container, which removes what a killed run leaves behind, is an image too; where it cannot be had,
TESTCONTAINERS_RYUK_DISABLED=true does without.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from docker.errors import APIError, DockerException
from requests.exceptions import RequestException
from testcontainers.core.container import DockerContainer

from integration.kafka_broker import Broker
from integration.kafka_node import READY, BrokerError, telling

DATA = "/tmp/kstream-kafka-data"
"""In the container's own file system: it stays over restarts, goes with the container, and the image's user may write there."""


class ContainerBroker(Broker):
    """The node in a container, its one port published on 127.0.0.1 only. `remove` it when done."""

    def __init__(self, image: str, settings: dict[str, str] | None = None) -> None:
        super().__init__(settings)
        self.image = image
        self._container: Any = None

    def start(self) -> None:
        """Pulls the image and makes the container the first time, which can take minutes."""
        with _one_line(self.image):
            told_before = 0 if self._container is None else self._log().count(READY)
            if self._container is None:
                self._make()
            else:
                self._container.start()
            end = time.monotonic() + 90
            while (said := self._log()).count(READY) == told_before:
                self._container.reload()
                if self._container.status == "exited" or time.monotonic() > end:
                    raise BrokerError(f"the Kafka broker did not start in a container of {self.image}: {telling(said)}")
                time.sleep(0.1)

    def stop(self) -> None:
        with _one_line(self.image):
            self._container.stop(timeout=15)

    def kill9(self) -> None:
        with _one_line(self.image):
            self._container.kill("SIGKILL")
            self._container.wait()

    def remove(self) -> None:
        """Ends the node by SIGKILL and removes its container and data. Twice is fine."""
        container, self._container = self._container, None
        if container is not None:
            with _one_line(self.image):
                container.remove(force=True, v=True)

    def _make(self) -> None:
        """Makes and starts it. Its port has the same number inside, so that the node finds itself under the name it tells clients."""
        made = DockerContainer(self.image).with_envs(**self._environment())
        made.ports[f"{self._port}/tcp"] = ("127.0.0.1", self._port)  # docker takes the address, testcontainers does not declare it
        try:
            made.start()
        finally:
            self._container = made._container  # also one that was made and could not be started

    def _environment(self) -> dict[str, str]:
        """Settings in the image's form: `log.dirs` is KAFKA_LOG_DIRS."""
        given = self.properties("0.0.0.0", DATA).items()
        return {"KAFKA_HEAP_OPTS": "-Xms64m -Xmx256m", **{f"KAFKA_{key.replace('.', '_').upper()}": str(value) for key, value in given}}

    def _log(self) -> str:
        return self._container.logs().decode(errors="replace")


@contextmanager
def running_container(image: str, settings: dict[str, str] | None = None) -> Iterator[ContainerBroker]:
    """A broker for the length of a with block."""
    broker = ContainerBroker(image, settings)
    try:
        broker.start()
        yield broker
    finally:
        broker.remove()


@contextmanager
def _one_line(image: str) -> Iterator[None]:
    """Docker's errors as a BrokerError of one line."""
    try:
        yield
    except (DockerException, RequestException) as e:
        said = " ".join(str(getattr(e, "explanation", None) or e).split())
        raise BrokerError(f"Docker cannot run {image}: {said}{_advice(e)}") from e


def _advice(error: Exception) -> str:
    if not isinstance(error, APIError):
        return " (does the Docker daemon run, and may this user speak to it?)"
    if "ryuk" in f"{error} {error.explanation}":
        return " (where testcontainers' helper image cannot be had, set TESTCONTAINERS_RYUK_DISABLED=true)"
    if "/images/create" in str(error):
        return " (where images cannot be pulled, build one by scripts/build_kafka_image.sh and name it in --kafka-image)"
    return ""
