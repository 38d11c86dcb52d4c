"""CommittingInputDStream: the commits of the direct stream. Its client of the brokers sends them.

What is committed, and when, is decided by OffsetCommitter (`offset_committer.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, TypeVar

from kstream.batch import InputOutcome
from kstream.batch_time import Time
from kstream.clock import Clock
from kstream.direct.direct_input_dstream import DirectInputDStream
from kstream.dstream.recipe import recorded
from kstream.offsets.offset_range import OffsetRange
from kstream_kafka.client.ports import DriverClient
from kstream_kafka.planning.plan import KafkaPlan
from kstream_kafka.source.offset_committer import CommitCallback, OffsetCommitter, as_callback

if TYPE_CHECKING:
    from kstream.dstream.ports import StreamHost

D = TypeVar("D", bound="CommittingInputDStream")
COMMIT_WAIT_S = 5.0
"""Seconds for which a stop waits for the answers to commits."""


class CommittingInputDStream(DirectInputDStream[KafkaPlan]):
    """The base of the direct stream: it holds the driver's client, and commits offsets by it.

    The methods for users are `commitAsync` and `publishOffsets`. The driver calls the others, from one thread at a time.
    """

    def __init__(self, ssc: StreamHost, on_data_loss: str, group: str | None, clock: Clock) -> None:
        """Create the stream and add it to the graph of its context. Sends no request.

        Args:
            ssc: the StreamingContext.
            on_data_loss: the policy for lost records.
            group: the consumer group `group.id`; None if there is none.
            clock: the clock.
        """
        super().__init__(ssc, on_data_loss)
        self._committer = OffsetCommitter(group, clock)
        self._client: DriverClient | None = None

    # -- methods for users

    def commitAsync(self, offsetRanges: Sequence[OffsetRange], callback: CommitCallback | None = None) -> None:
        """Commit the ends of ranges to Kafka, for the consumer group `group.id`. Any thread; returns at once.

        Commits are for tools that show lag, and for a later start at `committed`. A restart of the stream uses the checkpoint instead.
        A commit is sent when every batch up to its offsets has ended, mostly at the end of the calling batch. A failed commit is logged,
        and the end of the next batch sends it again. The group must have no members. If `publishOffsets` has the same group, that alone
        decides what is committed: of a call of this method only the callback counts.

        Args:
            offsetRanges: ranges whose records are processed, from `rdd.offsetRanges()`. Only their ends count.
            callback: `callback(offsets, error)`, or an object with Java's `onComplete`, called after the response to each commit. `offsets`
                is TopicAndPartition → offset, and `error` is None on success. Usually a thread of the client calls it. An error that it
                raises is logged. The stream has one callback: a new one replaces the former one, and None keeps it.

        Returns:
            None. The result of the commit goes to the callback.

        Raises:
            KafkaConfigError: the stream has no `group.id`.
            TypeError: `callback` cannot be called.

        Example:
            stream.foreachRDD(lambda rdd: stream.commitAsync(rdd.offsetRanges()))
        """
        self._committer.ask(offsetRanges, as_callback(callback))

    @recorded
    def publishOffsets(self: D, group: str | None = None) -> D:
        """Commit the offsets of completed batches to a consumer group of Kafka, for tools that show lag.

        `kafka-consumer-groups` and Burrow then show the lag of the job. When the completion of a batch is stored, one commit with the
        offsets of all partitions that have moved is sent. Nothing waits for it. It never passes the oldest unfinished batch. While a commit
        has no answer, no other one is sent; the next one has the newest offsets. A failed commit is one warning, and the end of the next
        batch sends it again: no batch fails or waits. A graceful stop sends the last offsets.

        A restart of the stream uses the checkpoint, not the group. Two streams that read one topic need two groups. With several calls each
        group gets the offsets.

        Args:
            group: the consumer group. It must have no members: Kafka lets only the members of a group commit, if it has any. None for the
                Kafka parameter `group.id`.

        Returns:
            This stream.

        Raises:
            KafkaConfigError: `group` is None, and the stream has no `group.id`.
            TypeError: `group` is no text.
            ValueError: `group` is empty.
            IllegalStateError: the context has started.

        Example:
            orders = KafkaUtils.createDirectStream(ssc, ["orders"], params).publishOffsets("orders-job")
        """
        self._node.ssc.check_can_add("consumer groups")
        self._committer.publish(group)
        return self

    # -- for the driver

    def stop(self) -> None:
        """Send the commits that are due, and close the client.

        Blocks up to COMMIT_WAIT_S for the answers to commits under way, and again for the answers to the last ones. A fenced driver sends
        no commits.
        """
        if self._client is not None:
            if not self.services.is_fenced():
                self._committer.finish(self._client, COMMIT_WAIT_S)
            self._client.close()
            self._client = None

    def remember_plan(self, time: Time, plan: KafkaPlan) -> None:
        """Keep the plan of a batch for its RDDs. Until the batch has ended, no commit passes its first offsets."""
        super().remember_plan(time, plan)
        self._committer.planned(time, plan.ranges)

    def outcome_of(self, time: Time) -> InputOutcome | None:
        """Return the `outcome` of a batch whose jobs have succeeded, noted for the commits; None without a kept plan. Any thread."""
        found = super().outcome_of(time)
        self._committer.succeeded(time)
        return found

    def batches_ended(self, unfinished: Collection[Time]) -> None:
        """Send the commits that have become due by the end of a batch. Does not wait for the answers. Called by the generator's thread.

        Args:
            unfinished: the batches that still have no completion. All others have ended.
        """
        if self._client is not None:
            self._committer.ended(unfinished)
            self._committer.send(self._client)

    def _connected(self) -> DriverClient:
        """Return the client. RuntimeError before `start` and after `stop`."""
        if self._client is None:
            raise RuntimeError("plan before start")
        return self._client
