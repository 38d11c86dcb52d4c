"""saveAsTextFiles, and directories that are there already."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext

from kstream.dstream.rdd_functions import file_name
from tests.streams import Stream


def test_a_batch_is_named_by_its_time_in_milliseconds() -> None:
    assert file_name("spark", None, 12345678910) == "spark-12345678910"
    assert file_name("spark", "tmp", 12345678910) == "spark-12345678910.tmp"


def lines(directory: Path) -> list[str]:
    assert (directory / "_SUCCESS").exists()
    return [line for part in sorted(directory.glob("part-*")) for line in part.read_text().splitlines()]


def test_each_batch_is_saved_as_text_in_a_directory_of_its_own(sc: SparkContext, tmp_path: Path) -> None:
    stream = Stream(sc)
    source = stream.ssc.queueStream([sc.parallelize([1, ("a", None)], 2), sc.parallelize(["ü"], 1), sc.parallelize([], 1)])
    source.saveAsTextFiles(f"{tmp_path}/out")
    source.saveAsTextFiles(prefix=f"{tmp_path}/out", suffix="txt")
    stream.start()
    for _ in range(3):
        stream.tick()
    stream.stop()
    stream.ssc.awaitTermination(1)
    times = stream.counter.completed
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"out-{t}{end}" for t in times for end in ("", ".txt"))
    for end in ("", ".txt"):
        assert [lines(tmp_path / f"out-{time}{end}") for time in times] == [["1", "('a', None)"], ["ü"], []]


def test_a_batch_that_is_run_again_writes_its_files_again(sc: SparkContext, tmp_path: Path) -> None:
    """CP6. The first attempt died in the middle: what it left is neither an error nor taken for the result."""
    stream = Stream(sc)
    left = tmp_path / f"out-{stream.clock.time_ms() + 1000}"
    left.mkdir()
    (left / "part-00000").write_text("half a li")
    stream.ssc.queueStream([sc.parallelize([1, 2], 2)]).saveAsTextFiles(f"{tmp_path}/out")
    stream.start()
    stream.tick()
    stream.stop()
    stream.ssc.awaitTermination(1)
    assert lines(left) == ["1", "2"]


def test_a_function_of_transform_may_write_its_files_again_too(sc: SparkContext, tmp_path: Path) -> None:
    """Spark behaviour CP6."""
    stream, directory = Stream(sc), tmp_path / "side"
    directory.mkdir()

    def save_aside(rdd: Any) -> Any:
        rdd.saveAsTextFile(str(directory))
        return rdd

    stream.ssc.queueStream([sc.parallelize([1], 1), sc.parallelize([2], 1)]).transform(save_aside).foreachRDD(lambda rdd: None)
    stream.start()
    stream.tick()
    assert lines(directory) == ["1"]
    stream.tick()
    stream.stop()
    stream.ssc.awaitTermination(1)
    assert lines(directory) == ["2"]


def test_outside_of_streaming_jobs_an_existing_directory_stays_an_error(sc: SparkContext, tmp_path: Path) -> None:
    """Spark behaviour CP6."""
    stream = Stream(sc)
    stream.ssc.queueStream([[1]]).saveAsTextFiles(f"{tmp_path}/out")
    stream.start()
    stream.tick()
    stream.stop()
    (directory,) = tmp_path.iterdir()
    with pytest.raises(Exception, match="already exists"):
        sc.parallelize([2]).saveAsTextFile(str(directory))
