"""Checkpoints of queries of Structured Streaming, and commands that read them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from kstream.cli import main

REAL = Path(__file__).parent / "structured_streaming"


KAFKA = '{"orders":{"0":15,"1":18}}'


BEGUN = 1_795_503_811_013


def query(folder: Path, offsets: Mapping[int, list[str]], commits: list[int], version: str = "v1", every_ms: int = 0) -> Path:
    """A checkpoint with these lines of sources by batch. Batch 0 began at BEGUN, and the others each so much later."""
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"6e7382d8-5b02-4b29-9878-ffb86be14819"}')
    for number, lines in offsets.items():
        metadata = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": BEGUN + number * every_ms, "conf": {}})
        (folder / "offsets" / str(number)).write_text("\n".join([version, metadata, *lines]))
    for number in commits:
        (folder / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return folder


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, env={"COLUMNS": "200"})


def data(*arguments: str, code: int = 0) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)
