"""What the start on a cluster says about executors that cannot run the tasks of a job."""

from __future__ import annotations

from kstream import connectors
from kstream.errors import ConfigurationError, MissingDependencyError
from kstream.spark.executor_check import ExecutorPython, judge

WELL = ExecutorPython("h1", "/opt/py", "3.11.7")
LACKING = ExecutorPython("h2", "/usr/bin/python3", "3.11.2", "ModuleNotFoundError: No module named 'confluent_kafka'", "confluent_kafka")


def test_executors_that_can_import_all_are_no_error() -> None:
    assert judge([WELL]) is None


def test_the_error_names_the_hosts_their_python_what_is_missing_and_the_remedies_in_one_line() -> None:
    error = judge([WELL, LACKING, LACKING])
    assert isinstance(error, MissingDependencyError) and error.facts["package"] == "confluent_kafka"
    assert str(error).startswith(
        "the Python of the executors on h2 (/usr/bin/python3, version 3.11.2) cannot import what the tasks need: "
        "ModuleNotFoundError: No module named 'confluent_kafka'. Set PYSPARK_PYTHON to a Python that every executor has"
    )
    assert "--archives environment.tar.gz#environment" in str(error) and "--py-files" in str(error) and "\n" not in str(error)


def test_a_checkpoint_that_an_executor_does_not_see_ends_the_start_of_a_job_with_state() -> None:
    error = judge([WELL, ExecutorPython("h2", "/opt/py", "3.11.7", checkpoint="/cp/probe-1 is not there")])
    assert isinstance(error, ConfigurationError)
    assert str(error).startswith(
        "the job has state, and executors do not reach its checkpoint: h2: /cp/probe-1 is not there. The executors"
    )


class OfKafka:
    """Stands for an input stream of a connector."""

    __module__ = "kstream_kafka.source.direct_input_dstream"


def test_the_modules_of_a_connector_are_asked_for_where_a_stream_of_it_is_read() -> None:
    assert connectors.modules_of_workers([]) == ["kstream"]
    assert connectors.modules_of_workers([OfKafka()]) == ["kstream", "kstream_kafka.reader.range_consumer"]
