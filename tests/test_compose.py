"""docker-compose.yml, as text: no YAML reader is a dependency. integration/test_compose.py brings it up."""

from __future__ import annotations

import re
from pathlib import Path

from integration.kafka_jars import KAFKA

TEXT = (Path(__file__).parent.parent / "docker-compose.yml").read_text()


def test_every_port_is_published_on_loopback_only() -> None:
    published = re.findall(r"^\s+ports:\s*\[(.*)\]$", TEXT, re.MULTILINE)
    assert len(published) == 2 == len(re.findall(r"\bports:", TEXT))
    assert all(re.fullmatch(r'"127\.0\.0\.1:\$\{\w+:-\d+\}:[^",]+"', ports) for ports in published), published
    assert "network_mode" not in TEXT


def test_images_can_be_named_and_kafka_is_the_version_that_is_tested() -> None:
    images = re.findall(r"^\s+image: \$\{(\w+):-(.*)\}$", TEXT, re.MULTILINE)
    assert images == [("KAFKA_IMAGE", f"apache/kafka:{KAFKA}"), ("ZOOKEEPER_IMAGE", "zookeeper:3.9")]
    assert TEXT.count("image:") == 2


def test_the_script_builds_the_images_that_the_file_names() -> None:
    script = (Path(__file__).parent.parent / "scripts" / "build_kafka_image.sh").read_text()
    for image in (f"local/kafka:{KAFKA}", "local/zookeeper:3.9"):
        assert f"build {image}\n" in script and image in TEXT
