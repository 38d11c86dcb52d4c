"""`import kstream` works in a Python that has nothing: no Java, no pyspark, no pyarrow, no confluent_kafka, no other package."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = """
import importlib, json, sys

sys.path[:0] = sys.argv[1:]
import kstream, kstream_kafka, pyspark_kstream

found = {}
for package in (kstream, kstream_kafka):
    for name in package.__all__:
        try:
            getattr(package, name)
            found[name] = ""
        except Exception as e:
            found[name] = f"{type(e).__name__}: {e}"
taken = [name for name in ("pyspark", "py4j", "pyarrow", "confluent_kafka", "fsspec", "click") if importlib.util.find_spec(name)]
print(json.dumps({"found": found, "taken": taken}))
"""


def in_a_bare_python() -> dict[str, Any]:
    """What each public name says in this Python without its packages (-S), without the user's (-I) and without programs."""
    command = [sys.executable, "-I", "-S", "-c", PROGRAM, str(ROOT), str(ROOT / "connectors")]
    environment = {"PATH": "/nonexistent", "JAVA_HOME": "/nonexistent"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_kstream_is_imported_in_a_python_that_has_nothing_and_a_name_that_needs_spark_says_what_to_install() -> None:
    told = in_a_bare_python()
    assert told["taken"] == [], "the Python of this test is not bare"
    refused = {name: text for name, text in told["found"].items() if text}
    assert refused.pop("JsonDeserializer") == (
        "MissingDependencyError: JsonDeserializer needs pyarrow, which is not installed: pip install 'kstream-spark[spark]'"
    )
    of_kstream = {"DStream", "InputDStream", "LogInputDStream", "Recipe", "StreamingContext"}
    assert refused.keys() == of_kstream | {"Broker", "DirectKafkaInputDStream", "KafkaRDD", "KafkaUtils"}
    assert {text.partition(" (")[0] for text in refused.values()} == {
        "MissingDependencyError: pyspark is not installed: pip install 'kstream-spark[spark]'"
    }
