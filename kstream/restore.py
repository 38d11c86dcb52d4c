"""From a stored graph back to calls, and from a graph to what is stored. The context's side of `checkpoint.sidecar`."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from pyspark import SparkContext

from kstream.batch_time import Duration
from kstream.checkpoint import sidecar
from kstream.conf import Settings
from kstream.dstream import DStream
from kstream.dstream.recipe import Recipe, Recorder, Replay
from kstream.dstream.reference import StreamReference, dumping, loading
from kstream.errors import ConfigurationError, NotSerializableError
from kstream.spark.spark_context import default_conf, dump_functions, load_functions, restored_conf
from kstream.storage import FileStore

logger = logging.getLogger(__name__)

_SAVED_CONF = re.compile(
    r"spark\.(app\.name|master|default\.parallelism|streaming\..*|(driver|executor)\.(memory|cores|maxResultSize|instances)"
    r"|cores\.max|task\.cpus|ui\.(enabled|showConsoleProgress)|locality\..*|shuffle\..*|memory\..*|speculation|network\.timeout"
    r"|dynamicAllocation\..*|python\..*|pyspark\..*)"
)
_SECRET = re.compile(r"secret|password|passwd|token|credential|sasl|ssl|jaas|\.key$", re.IGNORECASE)
_USER_IN_URL = re.compile(r"://[^/\s]*@")
_OF_ONE_START = "spark.streaming.kstream.recovery.allow"
MODES = ("auto", "graph", "setup")
C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class StoredGraph:
    """What a context is made of again: its interval, saved settings, operator calls and their functions."""

    interval_ms: int
    remember_ms: int | None
    conf: dict[str, str]
    calls: list[dict[str, Any]]
    functions: list[Any]
    references: list[StreamReference]
    """Streams inside the functions, to be bound once the calls have made them."""


def savable_conf(settings: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The settings that may be stored: an allow-list, and of that nothing whose name smells of a secret, no URL with a user in it, and
    nothing that was said about one restart only."""
    saved = {k: v for k, v in settings if _SAVED_CONF.fullmatch(k) and not _SECRET.search(k) and not _USER_IN_URL.search(v)}
    return {k: v for k, v in saved.items() if k != _OF_ONE_START}


def recovery_mode() -> str:
    """The setting, from the running SparkContext or from what a new one would be given."""
    return Settings(default_conf()).get("spark.streaming.kstream.recovery")


def make_again(stored: StoredGraph, make: Callable[[Any, Duration], C], mode: str, make_input: Callable[[C, Recipe], DStream]) -> C | None:
    """The context of a stored graph, made by `make(SparkContext or SparkConf, interval)`.

    A SparkContext that is there is taken as it is, with its own settings. None, with a warning, if the stored calls do not work any
    more – another kstream wrote them; under the mode "graph" that is raised.
    """
    existing = SparkContext._active_spark_context  # pyright: ignore
    context: Any = make(restored_conf(stored.conf) if existing is None else existing, Duration(stored.interval_ms))
    if stored.remember_ms is not None:
        context.remember(Duration(stored.remember_ms))
    replay = Replay(context, stored.functions, lambda recipe: make_input(context, recipe))
    try:
        replay.run(stored.calls)
    except Exception as e:
        if existing is None:
            context.sparkContext.stop()  # setup makes its own
        if mode == "graph":
            raise
        logger.warning("the stored graph cannot be made again, calling setup: %s: %s", type(e).__name__, e)
        return None
    for reference in stored.references:
        reference.bind(replay.streams)
    return context


def dump_graph_functions(recorder: Recorder) -> bytes:
    """The functions of a graph, pickled; NotSerializableError says which of them cannot be, by operator and line."""
    try:
        with dumping(recorder):
            return dump_functions(recorder.functions)
    except Exception as e:
        sites = _not_serializable(recorder)
        raise NotSerializableError(
            "Checkpointing is on, but the DStreams with their functions are not serializable: "
            f"{type(e).__name__}: {str(e).rstrip('.')}. "
            f"It is the function given to {', '.join(sites)}. Do not use the context, a lock, a connection or "
            "another object of this process inside it: make such things inside the function (rdd.context is the SparkContext there).",
            sites=sites,
        ) from e


def _not_serializable(recorder: Recorder) -> list[str]:
    """The operators whose functions cannot be pickled, each with the user's line."""
    found: list[str] = []
    for function, site in zip(recorder.functions, recorder.sites, strict=True):
        try:
            with dumping(recorder):
                dump_functions([function])
        except Exception:
            found.append(site)
    return found or ["an operator"]


def store_graph(
    store: FileStore, recorder: Recorder, functions: bytes, conf: dict[str, str], intervals: tuple[int, int | None],
    code: dict[str, str] | None,
) -> None:  # fmt: skip
    """Writes the sidecar. Failing to is no more than a warning: a restart then calls `setup`.

    A graph that can only be made by `setup` is stored without its functions: they would serve nobody, and may hold the very secret that
    is the reason (a dict of Kafka parameters at the top of the user's module is pickled with what uses it).
    """
    if recorder.why_not:
        functions = b""
    graph = {
        "interval": intervals[0],
        "remember": intervals[1],
        "conf": conf,
        "calls": recorder.calls,
        "why_not": recorder.why_not,
    }
    try:
        sidecar.write_sidecar(store, graph, functions, code)
    except Exception as e:
        logger.warning("the graph could not be stored beside the checkpoint, a restart will call setup: %s", e)


def load_graph(store: FileStore, setup: Callable[[], Any], mode: str) -> StoredGraph | str:
    """The stored graph if it may be used, else why `setup` has to be called. `mode` as in spark.streaming.kstream.recovery."""
    if mode not in MODES:
        raise ConfigurationError(
            f"spark.streaming.kstream.recovery is {mode!r}; it must be one of {', '.join(MODES)}",
            key="spark.streaming.kstream.recovery", value=mode,
        )  # fmt: skip
    if mode == "setup":
        return "spark.streaming.kstream.recovery is setup"
    stored = sidecar.read_sidecar(store)
    if isinstance(stored, str):
        return stored
    graph, functions, code = stored
    if graph["why_not"]:
        return graph["why_not"]
    if mode == "auto":
        difference = "it is not known what code made the graph" if code is None else sidecar.changed(code, setup)
        if difference:
            return difference
    try:
        with loading() as references:
            loaded = load_functions(functions)
    except Exception as e:
        return f"the stored functions cannot be loaded: {type(e).__name__}: {e}"
    return StoredGraph(graph["interval"], graph["remember"], graph["conf"], graph["calls"], loaded, references)
