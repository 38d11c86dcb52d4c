"""StreamingSource: the metrics of a running context (Spark's `StreamingSource`), made from the figures when somebody asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from kstream.batch import Figures, LogLag, ReceiverInfo
from kstream.batch.figures import Unit
from kstream.checkpoint.driver_status import DriverStatus
from kstream.metrics import families as f
from kstream.metrics.families import Family, MetricKind
from kstream.metrics.measured_store import StoreFigures
from kstream.monitoring.job_history import ReceiverHistory
from kstream.monitoring.job_snapshot import JobSnapshot

Values = Iterable[tuple[tuple[str, ...], float]]
"""The values of a metric, each with the values of its labels."""


class StreamingSource(Collector):
    """Makes all metrics. It reads what is in memory: no broker, store or executor is asked. Any thread.

    Args:
        snapshot: returns the job at this moment.
        store: has the figures of the plan log's requests.
        most_partitions: up to so many partitions, and so many topics, have a series of their own.
    """

    def __init__(
        self,
        snapshot: Callable[[], JobSnapshot],
        store: StoreFigures,
        most_partitions: int,
    ) -> None:
        self._snapshot = snapshot
        self._store = store
        self._most_partitions = most_partitions

    def collect(self) -> Iterator[Metric]:
        """Yield each metric with its values of this moment."""
        job = self._snapshot()
        yield from _of_driver(job.status)
        yield from _of_batches(job)
        yield from _of_inputs(job)
        yield from _of_lags(job.engine.lags, job.status, self._most_partitions)
        yield from self._of_the_rest(job)

    def _of_the_rest(self, job: JobSnapshot) -> Iterator[Metric]:
        """Yield the metrics of receivers, executors and the plan log."""
        not_started = {number: ReceiverHistory(ReceiverInfo(number, name, False, "", "")) for number, name in job.receivers.items()}
        receivers = sorted({**not_started, **job.history.receivers}.items())
        yield _metric(f.RECEIVERS, [((str(number), known.info.receiver_name), float(known.info.is_active)) for number, known in receivers])
        yield _metric(f.RECEIVER_STARTS, [((str(number), known.info.receiver_name), known.starts) for number, known in receivers])
        yield _metric(f.RECEIVER_ERRORS, [((str(number), known.info.receiver_name), known.errors) for number, known in receivers])
        yield _metric(f.WAITING_BLOCKS, [] if job.engine.waiting_blocks is None else [((), job.engine.waiting_blocks)])
        yield _metric(f.EXECUTORS, [] if job.executors is None else [((), job.executors)])
        yield _metric(f.WANTED, [((), decision.total) for _, decision in job.engine.allocations[-1:]])
        times = HistogramMetricFamily(f.LOG_TIME.name, f.LOG_TIME.meaning, labels=f.LOG_TIME.labels)
        for request, buckets, seconds in self._store.times():
            times.add_metric((request,), buckets, seconds)
        yield times
        yield _metric(f.LOG_ERRORS, [((request,), count) for request, count in self._store.errors()])


def _of_driver(status: DriverStatus) -> Iterator[Metric]:
    """Yield the metrics of the driver."""
    yield _metric(f.DRIVER_INFO, [((status.application,), 1)])
    yield _one(f.EPOCH, status.epoch)
    yield _one(f.STARTED, status.started_ms / 1000)
    yield _one(f.FENCED, float(status.ended == "fenced"))
    yield _one(f.STATE_WRITE_FAILED, float(status.state_error is not None))
    yield _one(f.OUTAGE, 0 if status.outage is None else status.outage.ms(status.written_ms) / 1000)


def _of_batches(job: JobSnapshot) -> Iterator[Metric]:
    """Yield the metrics of batches and output operations."""
    status, history, pending = job.status, job.history, job.engine.pending
    yield _one(f.INTERVAL, status.interval.seconds)
    yield _one(f.BEHIND, status.seconds_behind(status.written_ms))
    yield _one(f.BATCHES_BEHIND, status.batches_behind(status.written_ms))
    states = {"running": pending.running, "retrying": pending.retrying, "held": pending.held, "failed": pending.failed}
    yield _metric(f.PENDING, [((state,), len(batches)) for state, batches in states.items()])
    yield _metric(f.LAST_PLANNED, [] if status.last_planned is None else [((), status.last_planned.milliseconds / 1000)])
    last = history.recent[-1] if history.recent else None
    yield _metric(f.LAST_ENDED, [] if last is None else [((), last.batch_time.milliseconds / 1000)])
    yield _metric(f.LAST_RECORDS, [] if last is None else [((), last.numRecords())])
    yield _metric(f.BATCHES, [((result,), count) for result, count in history.ended.items()])
    yield _one(f.RETRIES, job.engine.retries)
    delays = (f.SCHEDULING, history.scheduling), (f.PROCESSING, history.processing), (f.TOTAL, history.total)
    for family, (buckets, seconds) in delays:
        yield HistogramMetricFamily(family.name, family.meaning, buckets=buckets, sum_value=seconds)
    yield from _of_figures(f.STATE_FIGURES, [((), history.state)])
    runs = sorted(history.operations.items())
    yield _metric(f.OPERATIONS, [((str(number), name, result), count) for (number, name, result), count in runs])
    outputs = sorted(history.outputs.items())
    yield from _of_figures(f.OUTPUT_FIGURES, [((str(number), name), figures) for (number, name), figures in outputs])


def _of_figures(families: Mapping[str, Family], parts: Sequence[tuple[tuple[str, ...], Figures]]) -> Iterator[Metric]:
    """Yield the metric of each figure, with the values of the parts of a batch that know it.

    Args:
        families: the metrics by the names of the figures.
        parts: the values of the labels, with the figures.
    """
    values: dict[str, list[tuple[tuple[str, ...], float]]] = {name: [] for name in families}
    for labels, figures in parts:
        for found in figures.known():
            values[found.field.name].append((labels, found.value / 1000 if found.field.unit is Unit.MILLISECONDS else found.value))
    for name, family in families.items():
        yield _metric(family, values[name])


def _of_inputs(job: JobSnapshot) -> Iterator[Metric]:
    """Yield the metrics of inputs, except their lags."""
    known = sorted(job.history.inputs.items())
    yield _metric(f.INPUT_INFO, [((str(number), each.progress.description), 1) for number, each in known])
    yield _metric(f.RECORDS, [((str(number),), each.num_records) for number, each in known])
    yield from _of_figures(f.INPUT_FIGURES, [((str(number),), each.figures) for number, each in known])
    yield _metric(
        f.RECORD_ERRORS, [((str(number), job.error_policies.get(number, "fail")), each.num_record_errors) for number, each in known]
    )
    yield _metric(f.SKIPPED, [((str(number),), each.num_skipped) for number, each in known])
    yield _metric(f.LOSSES, [((str(number),), each.num_losses) for number, each in known])
    yield _metric(f.LIMITED, [((str(number), reason), count) for (number, reason), count in sorted(job.history.limited.items())])
    yield _metric(f.RATE, [((str(number),), rate) for number, rate in sorted(job.engine.rates.items())])


def _of_lags(lags: Mapping[int, LogLag], status: DriverStatus, most: int) -> Iterator[Metric]:
    """Yield the lags of inputs; of topics and of partitions if there are no more than `most`, of all inputs together.

    The lag of a single partition is computed only if it is shown. In an outage nobody counts new records: then no lag in records is shown,
    and in seconds only where records are known to wait.
    """
    is_counted, now_ms = status.outage is None, status.written_ms
    known = [(str(number), lag, list(lag.by_topic(now_ms))) for number, lag in lags.items()]
    of_inputs = [
        ((number,), sum(each.records for each in topics), max(each.seconds for each in topics)) for number, _, topics in known if topics
    ]
    yield from _of_places(f.INPUT_LAG, f.INPUT_LAG_S, of_inputs, is_counted)
    yield _metric(f.INPUT_UNPLANNED, [((number,), lag.unplanned) for number, lag, topics in known if topics and is_counted])
    by_topic = [((number, each.topic), each) for number, _, topics in known for each in topics]
    shown = by_topic if len(by_topic) <= most else []
    yield from _of_places(f.TOPIC_LAG, f.TOPIC_LAG_S, [(labels, each.records, each.seconds) for labels, each in shown], is_counted)
    few = sum(each.partitions for _, each in by_topic) <= most
    partitions = [((number, each.topic, each.partition), each) for number, lag, _ in known if few for each in lag.by_partition(now_ms)]
    of_partitions = [(labels, each.records, each.seconds) for labels, each in partitions]
    yield from _of_places(f.PARTITION_LAG, f.PARTITION_LAG_S, of_partitions, is_counted)


def _of_places(records: Family, seconds: Family, lags: Sequence[tuple[tuple[str, ...], int, float]], is_counted: bool) -> Iterator[Metric]:
    """Yield the lags of inputs, topics or partitions: the values of the labels, the records, the seconds."""
    yield _metric(records, [(labels, count) for labels, count, _ in lags if is_counted])
    yield _metric(seconds, [(labels, waited) for labels, count, waited in lags if is_counted or count])


def _one(family: Family, value: float) -> Metric:
    """Return a metric without labels."""
    return _metric(family, [((), value)])


def _metric(family: Family, values: Values) -> Metric:
    """Return a metric with its values."""
    kind = CounterMetricFamily if family.kind is MetricKind.COUNTER else GaugeMetricFamily
    made = kind(family.name, family.meaning, labels=family.labels)
    for labels, value in values:
        made.add_metric([_sendable(label) for label in labels], value)
    return made


def _sendable(label: str) -> str:
    """Return a label as UTF-8 has it. A name of a file that is no UTF-8 has lone surrogates, and those become escapes."""
    return label if label.isascii() else label.encode(errors="backslashreplace").decode()
