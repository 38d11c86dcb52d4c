"""kafka-consumer-groups of Kafka's distribution, as a process: what its users see of a group.

The jars of the broker lack Kafka's tools. Their jar is fetched once into `.cache/`.
"""

from __future__ import annotations

import os
import subprocess

from integration.kafka_jars import CACHE, KAFKA, jar_alone, kafka_jars
from kstream.spark.java import find_java_home

_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
_JVM = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")


def described(bootstrap: str, group: str) -> list[dict[str, str]]:
    """The rows of `kafka-consumer-groups --describe`, by the titles of its columns; JarsMissingError if the tool cannot be had."""
    tools = jar_alone(f"org.apache.kafka:kafka-tools:{KAFKA}", CACHE / f"kafka-tools-{KAFKA}" / "kafka-tools.jar")
    java = [str(find_java_home(os.environ) / "bin" / "java"), *_JVM, "-cp", f"{kafka_jars()}/*:{tools}"]
    command = [*java, _COMMAND, "--bootstrap-server", bootstrap, "--describe", "--group", group]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    titles, *rows = (line.split() for line in done.stdout.splitlines() if len(line.split()) > 8)
    return [dict(zip(titles, row, strict=True)) for row in rows]
