"""Commands of Kafka's distribution, as processes: what its users see of a group, and of a topic.

The jars of the broker lack Kafka's tools. Their jar is fetched once into `.cache/`.
"""

from __future__ import annotations

import os
import subprocess

from integration.kafka_jars import CACHE, KAFKA, jar_alone, kafka_jars
from kstream.spark.java import find_java_home

_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
_CONSOLE = "org.apache.kafka.tools.consumer.ConsoleConsumer"
_JVM = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Dlog4j2.level=OFF")  # no log among the values
SILENCE_MS = 10_000
"""After so long a time without a record a topic has been read to its end."""


def described(bootstrap: str, group: str) -> list[dict[str, str]]:
    """The rows of `kafka-consumer-groups --describe`, by the titles of its columns; JarsMissingError if the tool cannot be had."""
    done = _ran(_GROUPS, bootstrap, "--describe", "--group", group)
    titles, *rows = (line.split() for line in done.stdout.splitlines() if len(line.split()) > 8)
    return [dict(zip(titles, row, strict=True)) for row in rows]


def committed_values(bootstrap: str, topic: str) -> list[str]:
    """The values that `kafka-console-consumer --isolation-level read_committed` prints of a topic. None has a line break.

    JarsMissingError if the tool cannot be had.
    """
    options = ("--from-beginning", "--isolation-level", "read_committed", "--timeout-ms", str(SILENCE_MS))
    done = _ran(_CONSOLE, bootstrap, "--topic", topic, *options)
    if f"Processed a total of {len(lines := done.stdout.splitlines())} messages" not in done.stderr:
        raise AssertionError(f"kafka-console-consumer printed {len(lines)} lines, and says: {done.stderr[-1000:]}")
    return lines


def _ran(command: str, bootstrap: str, *options: str) -> subprocess.CompletedProcess[str]:
    tools = jar_alone(f"org.apache.kafka:kafka-tools:{KAFKA}", CACHE / f"kafka-tools-{KAFKA}" / "kafka-tools.jar")
    java = [str(find_java_home(os.environ) / "bin" / "java"), *_JVM, "-cp", f"{kafka_jars()}/*:{tools}"]
    return subprocess.run(
        [*java, command, "--bootstrap-server", bootstrap, *options], capture_output=True, text=True, timeout=120, check=True
    )
