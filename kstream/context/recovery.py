"""Recovery of a context: storing and restoring its graph under `recovery=graph`, and pickling the user's functions at every start.

A start calls `setup`, unless the checkpoint holds a graph that `recovery=graph` has stored. Then this graph is restored, as in Spark. The
graph of a stream with a secret parameter is refused at the start: no secret is stored, and a user of `graph` expects that no restart calls
`setup`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

from pyspark import SparkContext

from kstream import connectors
from kstream.batch_time import Duration
from kstream.checkpoint import stored_graph
from kstream.checkpoint.input_records import write_connections
from kstream.checkpoint.reader import has_checkpoint, newest_plan
from kstream.conf import Settings
from kstream.context.settings import RECOVERY
from kstream.dstream import DStream, DStreamGraph, QueueInputDStream
from kstream.dstream.ports import services_of
from kstream.dstream.queue_input_dstream import QUEUE_KIND
from kstream.dstream.recipe import Recipe, Recorder, Replay, UserFunction
from kstream.dstream.reference import StreamReference, dumping, loading
from kstream.errors import ConfigurationError, GraphNotRestoredError, NotRecoverableError, NotSerializableError, StorageError
from kstream.secret import SPARKS_NAMES, looks_secret
from kstream.spark.checkpoint_store import CheckpointDirectory
from kstream.spark.spark_context import (
    active_spark_context,
    default_conf,
    dump_functions,
    load_functions,
    restored_conf,
    settings_of,
    try_to_pickle,
)
from kstream.storage import FileStore

logger = logging.getLogger(__name__)

SETUP, GRAPH = "setup", stored_graph.GRAPH_MODE
_OF_ONE_PROCESS = re.compile(
    r"spark\.(app\.(id|startTime|submitTime|attempt\.id|initial\..*)|executor\.id|driver\.(host|bindAddress|port|appUIAddress)"
    r"|(driver\.)?blockManager\.port|ui\.(port|filters|proxyBase)|submit\.deployMode|repl\..*|yarn\.(app|credentials)\..*"
    r"|kubernetes\.(driver\.pod\.name|executor\.podNamePrefix)|org\.apache\.hadoop\.yarn\..*|streaming\.kstream\.recovery\.allow)"
)
"""Settings that are not stored: addresses and ids of one process, as in Spark's Checkpoint, and permissions for one start."""
_REDACTION = "spark.redaction.regex"
C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class StoredGraph:
    """A stored graph: interval, settings, operator calls and their functions."""

    path: str
    interval_ms: int
    remember_ms: int | None
    conf: dict[str, str]
    calls: list[dict[str, Any]]
    functions: list[Any]
    references: list[StreamReference]
    """References to streams inside the functions. They are bound after the calls have made the streams."""


# -- which of the two modes


def recovery_mode(settings: Settings) -> str:
    """Return SETUP or GRAPH, the value of the setting. ConfigurationError for any other value."""
    mode = settings[RECOVERY]
    if mode in (SETUP, GRAPH):
        return mode
    if mode == "auto":
        raise ConfigurationError(
            f"{RECOVERY} is 'auto', a mode that no longer exists: setup is called at every start, stored offsets go to the streams that "
            "setup makes. Remove the setting. Or set it to graph, and later starts restore a stored graph without setup.",
            key=RECOVERY.key,
            value=mode,
        )
    raise ConfigurationError(f"{RECOVERY} is {mode!r}; it must be setup (the default) or graph", key=RECOVERY.key, value=mode)


def setup_is_demanded() -> bool:
    """Return whether recovery=setup is set before `setup` runs: in the active SparkContext, else in Spark's default settings.

    Raises:
        ConfigurationError: another value than setup or graph is set.
    """
    conf = default_conf()
    return conf.get(RECOVERY.key) is not None and recovery_mode(Settings(conf)) == SETUP


# -- from the stored graph to a context


def load_graph(store: FileStore) -> StoredGraph | None:
    """Read the graph that a driver with recovery=graph has stored. Blocks on the store, and unpickles the functions of the graph.

    Returns:
        The graph; None if there is none.

    Raises:
        GraphNotRestoredError: the record is damaged, or its functions cannot be loaded.
        StorageError: the store failed.
    """
    record = stored_graph.read_graph(store)
    if record is None:
        return None
    path = store.path(stored_graph.names.GRAPH)
    try:
        with loading() as references:
            on_workers, on_driver = load_functions(record.worker_functions), load_functions(record.driver_functions)
    except Exception as e:
        raise stored_graph.not_restored(path, f"its functions cannot be loaded ({type(e).__name__}: {e})") from e
    functions = on_driver
    for index, function in zip(record.on_workers, on_workers, strict=True):
        functions.insert(index, function)
    graph = record.graph
    return StoredGraph(path, graph["interval"], graph["remember"], graph["conf"], graph["calls"], functions, references)


def made_or_restored(directory: CheckpointDirectory, setup: Callable[[], C], restore: Callable[[StoredGraph], C]) -> C:
    """Return the context of a job: restored from its stored graph, if it has one and no setting demands `setup`; else made by `setup`.

    Args:
        directory: the checkpoint directory. It is made before `setup`, which starts Spark: that takes seconds.
        setup: makes the context.
        restore: restore(stored) makes the context of a stored graph.

    Raises:
        CheckpointError: the stored data cannot be trusted.
        GraphNotRestoredError: a stored graph cannot be restored.
        StorageError: the store cannot be read, or the directory cannot be made.
    """
    path, store = directory.url, directory.open()
    has_run = has_checkpoint(store)
    if has_run:
        newest_plan(store)
    stored = load_graph(store) if has_run and not setup_is_demanded() else None
    if stored is not None:
        logger.info("restoring the graph stored in %s without calling setup", path)
        return restore(stored)
    if has_run:
        logger.info("calling setup; the offsets stored in %s go to its streams by name or position", path)
    return setup()


def make_again(stored: StoredGraph, make: Callable[[Any, Duration], C]) -> C:
    """Make the context of a stored graph. If its stored calls fail, a SparkContext that was made here is stopped.

    Args:
        stored: the graph.
        make: make(sc_or_conf, interval) makes a context. An existing SparkContext is used with its own settings.

    Raises:
        GraphNotRestoredError: the stored calls no longer work, because another version of kstream wrote them.
        NotRecoverableError: no restart can make an input again.
    """
    existing = active_spark_context()
    conf: AbstractContextManager[Any] = restored_conf(stored.conf) if existing is None else nullcontext(existing)
    with conf as given:
        context: Any = make(given, Duration(stored.interval_ms))
    try:
        services_of(context).settings.override(RECOVERY, GRAPH)  # an existing SparkContext may lack the setting
        if stored.remember_ms is not None:
            context.remember(Duration(stored.remember_ms))
        replay = Replay(context, stored.functions, lambda recipe: _input_again(context, recipe))
        replay.run(stored.calls)
        for reference in stored.references:
            reference.bind(replay.streams)
    except Exception as e:
        if existing is None:
            context.sparkContext.stop()
        if isinstance(e, (NotRecoverableError, GraphNotRestoredError)):
            raise
        raise stored_graph.not_restored(stored.path, f"its operators cannot be called again ({type(e).__name__}: {e})") from e
    return context


def _input_again(context: Any, recipe: Recipe) -> DStream[Any]:
    """Make an input stream of a stored graph, by its connector. NotRecoverableError for a queue stream."""
    if recipe.kind == QUEUE_KIND:
        raise QueueInputDStream.not_recoverable()
    return connectors.load(recipe.kind.partition("-")[0]).restore_input(context, recipe)


# -- from a graph to its stored form, and the check of its functions


def check_functions(recorder: Recorder) -> None:
    """Pickle every function that runs on workers, as a check. NotSerializableError names the operators and lines of those that fail."""
    functions = recorder.worker_functions
    _pickled(functions, lambda: try_to_pickle([function.value for function in functions]), _for_workers)


def dump_graph(recorder: Recorder) -> stored_graph.GraphRecord:
    """Return the calls and functions of a graph, each function pickled once. NotSerializableError if the graph cannot be stored.

    The functions of the workers are pickled as tasks pickle them. Only functions of the driver may contain streams.
    """
    why_not = recorder.why_not or _secret_argument(recorder)
    if why_not is not None:
        raise NotSerializableError(
            f"{RECOVERY} is graph, but the graph cannot be stored: {why_not}. Remove the setting: then every start "
            "calls setup, and offsets and state continue",
            sites=[],
        )
    indexes = [index for index, function in enumerate(recorder.functions) if recorder.runs_on_workers(function.value)]
    on_workers = [recorder.functions[index].value for index in indexes]
    on_driver = [function for index, function in enumerate(recorder.functions) if index not in indexes]
    others = [noted.value for noted in recorder.worker_functions if not any(noted.value is stored for stored in on_workers)]
    _pickled(recorder.worker_functions, lambda: try_to_pickle(others), _for_workers)
    workers = _pickled(recorder.worker_functions, lambda: dump_functions(on_workers), _for_workers)
    with dumping(recorder.index_of):
        driver = _pickled(on_driver, lambda: dump_functions([function.value for function in on_driver]), _for_the_graph)
    return stored_graph.GraphRecord({"calls": recorder.calls}, indexes, workers, driver)


def _secret_argument(recorder: Recorder) -> str | None:
    """Return why a graph must not be stored: an argument of an operator holds a secret, for example a URL with a password."""
    for call in recorder.calls:
        given = [*call["args"], *call["kwargs"].values()] if "call" in call else []
        if any(isinstance(value, str) and looks_secret("", value) for value in given):
            return f"an argument of {call['call']} holds a password or another secret, and secrets are never stored"
    return None


B = TypeVar("B")


def _pickled(functions: Sequence[UserFunction], pickle_all: Callable[[], B], words: Callable[[str, str], str]) -> B:
    """Return the result of `pickle_all`.

    Args:
        functions: the functions that it pickles.
        pickle_all: pickles all of them.
        words: words(sites, error) makes the message.

    Raises:
        NotSerializableError: a function cannot be pickled. Each function was tried again, and the error names those that fail.
    """
    try:
        return pickle_all()
    except Exception as e:
        sites = [function.site for function in functions if _fails(function)] or ["an operator"]
        raise NotSerializableError(words(", ".join(sites), f"{type(e).__name__}: {str(e).rstrip('.')}"), sites=sites) from e


def _fails(function: UserFunction) -> bool:
    """Return whether a function cannot be pickled."""
    try:
        try_to_pickle([function.value])
    except Exception:
        return True
    return False


def _for_workers(sites: str, said: str) -> str:
    """Return the message about a function that runs on workers and cannot be pickled."""
    return (
        f"The function given to {sites} runs on the workers and cannot be pickled: {said}. Do not use the context, a stream, a lock, a "
        "connection or another object of this process inside it: make such things inside the function, or once a partition (mapPartitions)"
    )


def _for_the_graph(sites: str, said: str) -> str:
    """Return the message about a function of the driver that a stored graph needs and that cannot be pickled."""
    return (
        f"{RECOVERY} is graph, but the DStreams with their functions are not serializable: {said}. It is the function given to {sites}. Do "
        "not use the context, a lock, a connection or another object of this process inside it: make such things inside the function "
        "(rdd.context is the SparkContext there). Or remove the setting: then functions of the driver are not stored"
    )


def storable_conf(settings: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Select the settings to store. Addresses and ids of one process are never stored.

    Returns:
        The settings to store; and the names of the settings that are left out because they may hold a secret.

    Raises:
        ConfigurationError: `spark.redaction.regex` is not a regular expression of Python.
    """
    lasting = {key: value for key, value in settings.items() if not _OF_ONE_PROCESS.fullmatch(key)}
    redacted = _redacted(lasting.get(_REDACTION, SPARKS_NAMES))
    secret = {key for key, value in lasting.items() if key != _REDACTION and looks_secret(key, value, also=redacted)}
    return {key: value for key, value in lasting.items() if key not in secret}, sorted(secret)


def _redacted(pattern: str) -> re.Pattern[str]:
    """Compile the value of `spark.redaction.regex`. ConfigurationError if Python cannot read it."""
    try:
        return re.compile(pattern)
    except re.error as e:
        raise ConfigurationError(
            f"{_REDACTION} is {pattern!r}, which Python's re cannot read: {e}. Settings that it names must not be stored. Write it "
            f"otherwise, or remove {RECOVERY}=graph",
            key=_REDACTION,
            value=pattern,
        ) from e


def store_for_restarts(store: FileStore, record: stored_graph.GraphRecord | None, graph: DStreamGraph, sc: SparkContext) -> None:
    """Store the graph of `record`; without one, under `recovery=setup`, delete a stored graph. Store the connections of the inputs.

    Blocks on the store. Called when this driver is the checkpoint's writer, and before any batch runs: otherwise a driver that is killed
    while missed batches run would leave an old graph to the next start.

    Args:
        store: the checkpoint.
        record: the calls and functions of the graph.
        graph: the graph of the context.
        sc: the SparkContext, whose settings are stored.

    Raises:
        StorageError: the store failed.
        ConfigurationError: `spark.redaction.regex` is not a regular expression of Python.
    """
    if record is None:
        _drop_graph(store)
    else:
        _store_graph(store, record, graph, sc)
    store_connections(store, graph)


def _store_graph(store: FileStore, record: stored_graph.GraphRecord, graph: DStreamGraph, sc: SparkContext) -> None:
    """Store the graph with its interval and its settings, which are added to the record. Raises as `store_for_restarts`."""
    remember = graph.remember_duration
    conf, secret = storable_conf(settings_of(sc))
    if secret:
        logger.warning("settings that may hold a secret are not stored, a restart must be given them again: %s", ", ".join(secret))
    record.graph.update(interval=graph.batch_duration.milliseconds, remember=None if remember is None else remember.milliseconds, conf=conf)
    stored_graph.write_graph(store, record)


def _drop_graph(store: FileStore) -> None:
    """Delete the stored graph after a start that called `setup`, so that no later start restores old code. Blocks; StorageError."""
    version = stored_graph.remove_graph(store)
    if version is not None:
        why = "an earlier version of kstream stored it, and it is not used any more" if version == 1 else f"{RECOVERY} is setup"
        logger.info("removed %s: %s", store.path(stored_graph.names.GRAPH), why)


def store_connections(store: FileStore, graph: DStreamGraph) -> None:
    """Store the connection parameters of the inputs, for commands. Blocks on the store.

    A StorageError is logged as a warning and not raised: a user of commands can give the brokers.
    """
    recipes = {stream.id: stream.recipe() for stream in graph.input_streams}
    known = {number: (recipe.kind, recipe.args["params"]) for number, recipe in recipes.items() if recipe and "params" in recipe.args}
    try:
        write_connections(store, known)
    except StorageError as e:
        logger.warning("the parameters of the inputs are not stored, commands will need --bootstrap: %s", e)
