"""What a type checker knows of streams: the types of their records, from operator to operator."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import kstream_kafka
import pytest

import kstream

ROOT = Path(__file__).resolve().parents[2]
STREAMS = Path(__file__).with_name("streams_as_pyright_sees_them.py")
PYRIGHT = shutil.which("pyright", path=str(Path(sys.executable).parent))


def diagnostics(*files: Path) -> list[dict[str, Any]]:
    """What pyright says of the files, each as its JSON."""
    assert PYRIGHT is not None, "pyright is not installed beside this Python"
    done = subprocess.run([PYRIGHT, "--outputjson", *map(str, files)], capture_output=True, text=True, cwd=ROOT)
    return json.loads(done.stdout)["generalDiagnostics"]


def test_pyright_knows_the_records_of_a_stream_and_refuses_what_they_cannot_do() -> None:
    found: defaultdict[int, str] = defaultdict(str)
    for each in diagnostics(STREAMS):
        found[each["range"]["start"]["line"] + 1] += each["message"]
    lines = enumerate(STREAMS.read_text().splitlines(), start=1)
    refused = {number: words[1] for number, line in lines if (words := re.search(r"  # refused: (.+)", line))}
    assert len(refused) > 5
    assert {number: found[number] for number in found if number not in refused} == {}
    assert {number: words for number, words in refused.items() if words not in found[number]} == {}


def test_pyright_knows_the_offset_ranges_in_every_example_of_the_docs(tmp_path: Path) -> None:
    written: list[Path] = []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        code = "\n".join(re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL))
        if "offsetRanges()" in code:
            written.append(tmp_path / f"{page.stem.replace('-', '_')}.py")
            written[-1].write_text(code)
    assert len(written) > 3
    said = [(Path(each["file"]).name, each["message"]) for each in diagnostics(*written)]
    assert [(name, message) for name, message in said if "offsetRanges" in message or "KafkaRDD" in message] == []


@pytest.mark.parametrize("package", [kstream, kstream_kafka])
def test_a_package_says_that_it_has_types_and_shows_its_public_names(package: object) -> None:
    assert (Path(str(vars(package)["__file__"])).parent / "py.typed").is_file()
    assert sorted(dir(package)) == sorted(vars(package)["__all__"])
