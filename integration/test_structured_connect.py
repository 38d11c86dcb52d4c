"""`format("kstream")` over Spark Connect: the server has kstream on its path, and no client needs it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from integration import connect_client
from integration.connect_server import client_environment, running_connect
from integration.kafka_broker import KafkaBroker


def test_a_client_of_spark_connect_reads_a_batch_and_a_stream(kafka: KafkaBroker, topic: Callable[..., str], tmp_path: Path) -> None:
    t = topic(1)
    kafka.produce(t, [(None, f"v{i}", 0) for i in range(5)])
    environment = client_environment()
    with running_connect(tmp_path / "server") as url:
        command = [sys.executable, connect_client.__file__, url, kafka.bootstrap, t, str(tmp_path / "checkpoint")]
        ended = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=150)
    assert ended.returncode == 0, ended.stderr[-3000:]
    told = json.loads(ended.stdout.splitlines()[-1])
    rows = [[i, f"v{i}"] for i in range(5)]
    assert told["batch"] == rows and told["stream"] == rows
    assert "Option 'startingoffset' of the data source kstream is unknown. Did you mean 'startingOffsets'" in told["refused"]
