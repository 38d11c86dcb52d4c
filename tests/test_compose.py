"""docker-compose.yml, its image and its demo, as text. integration/test_compose.py brings them up."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

from integration.kafka_jars import KAFKA

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docker-compose.yml").read_text()
FILE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = FILE["services"]
SCRIPT = (ROOT / "scripts" / "build_images.sh").read_text()
ONCE = {"topics"}
"""It ends when the topics are there."""


def test_every_port_is_published_on_loopback_only_and_can_be_another_one() -> None:
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert len(published) == 7
    assert all(re.fullmatch(r"127\.0\.0\.1:\$\{\w+_PORT:-\d+\}:[^:]*(:-\d+\})?", port) for port in published), published
    assert not any("network_mode" in service or "privileged" in service for service in SERVICES.values())


def test_images_can_be_named_and_kafka_is_the_version_that_is_tested() -> None:
    images = {service["image"] for service in SERVICES.values()}
    assert images == {
        f"${{KAFKA_IMAGE:-apache/kafka:{KAFKA}}}", "${ZOOKEEPER_IMAGE:-zookeeper:3.9}", "${KSTREAM_IMAGE:-kstream-spark}",
        "${PROMETHEUS_IMAGE:-prom/prometheus:v3.5.0}",
    }  # fmt: skip


def test_the_script_builds_the_images_that_the_file_names() -> None:
    for image in (f"local/kafka:{KAFKA}", "local/zookeeper:3.9", "local/prometheus"):
        assert f"build {image}\n" in SCRIPT or f"-t {image} " in SCRIPT
        assert image in TEXT
    assert "-t kstream-spark " in SCRIPT
    base = "python:3.11-slim-bookworm"
    assert base in TEXT and base in SCRIPT and base in (ROOT / "compose" / "Dockerfile").read_text()


def test_each_service_that_stays_has_a_health_check_but_the_stream_of_orders() -> None:
    assert {name for name, service in SERVICES.items() if "healthcheck" not in service} == {*ONCE, "feed"}


def test_the_driver_is_process_1_and_has_the_time_that_a_graceful_stop_takes() -> None:
    job = SERVICES["job"]
    assert job["command"][:2] == ["kstream", "run"] and "entrypoint" not in job and "init" not in job
    assert int(job["stop_grace_period"].removesuffix("s")) > 2 * 10 + 10  # spark.streaming.gracefulStopTimeout is 10 batches of a second


def test_driver_and_workers_are_of_one_image_and_see_one_checkpoint() -> None:
    names = ["job", "spark-worker-1", "spark-worker-2"]
    assert {SERVICES[name]["image"] for name in names} == {"${KSTREAM_IMAGE:-kstream-spark}"}
    assert all("checkpoints:/checkpoints" in SERVICES[name]["volumes"] for name in names)
    assert "checkpoints" in FILE["volumes"] and "kafka" in FILE["volumes"]


def test_no_secret_is_in_the_file() -> None:
    assert re.findall(r"(?i)(password|secret|token)\w*\s*[:=]", TEXT) == []


def test_prometheus_scrapes_the_job_and_has_the_alerts_of_the_docs() -> None:
    config = yaml.safe_load((ROOT / "compose" / "prometheus.yaml").read_text())
    (scrape,) = config["scrape_configs"]
    assert "kstream" in scrape["job_name"] and scrape["static_configs"] == [{"targets": ["job:9404"]}]
    assert config["rule_files"] == ["rules.yaml"]
    assert "./docs/monitoring/rules.yaml:/etc/prometheus/rules.yaml:ro" in SERVICES["prometheus"]["volumes"]


def test_the_image_takes_what_the_context_of_docker_has() -> None:
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert {name for name in allowed if not (ROOT / name).exists()} == {"wheels"}  # scripts/build_images.sh puts them there
    sources = re.search(r"^SOURCES=\((.*) \.dockerignore\)", SCRIPT, re.MULTILINE)
    assert sources is not None and set(sources[1].split()) | {"wheels"} == allowed


def test_the_tag_of_the_image_changes_with_each_source_and_with_nothing_else(tmp_path: Path) -> None:
    sources = [tmp_path / name for name in ("compose/Dockerfile", "connectors/a/b.py", "kstream/c.py", "scripts/build_images.sh")]
    sources += [tmp_path / name for name in ("LICENSE", "README.md", "pyproject.toml", "requirements.lock", ".dockerignore")]
    for source in sources:
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(SCRIPT)

    def tag() -> str:
        command = ["bash", str(tmp_path / "scripts" / "build_images.sh"), "tag"]
        return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout

    first = tag()
    assert re.fullmatch(r"kstream-spark:[0-9a-f]{12}\n", first)
    for source in sources:
        source.write_text(f"{SCRIPT}# changed\n")
        assert tag() != first, source
        source.write_text(SCRIPT)
    for other in ("kstream/__pycache__/c.pyc", "docs/index.md"):
        (tmp_path / other).parent.mkdir()
        (tmp_path / other).write_text("")
    assert tag() == first
