"""GroupMember: the life of one consumer of a group.

The member joins, shares the partitions, reads and releases. It joins again when its session is lost. One thread decides everything, in
steps (`step`). The block generator's threads store and acknowledge.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from kstream.clock import Clock, StopFlag
from kstream.errors import IllegalStateError
from kstream.loop import THREADS
from kstream.offsets.offset_range import Partition
from kstream.receiver import Receiver
from kstream_kafka.errors import OwnershipLostError
from kstream_kafka.zookeeper.group_reader import GroupChunk, GroupReader, Record
from kstream_kafka.zookeeper.receiver_settings import ReceiverSettings
from kstream_kafka.zookeeper.stored_offsets import Acknowledgement, BlockOffsets, ReadProgress
from kstream_kafka.zookeeper.zookeeper_layout import Offsets, owned_by, owners
from kstream_kafka.zookeeper.zookeeper_offsets import ZooKeeperMembership

logger = logging.getLogger("kstream.kafka")

MOST_A_READ = 2_000
"""Most records of one read. More are slower, because the garbage collector then visits records that wait for the block generator."""
MOST_UNDER_WAY = 250_000
"""Most records that are read and not yet stored. With more the member stops reading, because a generator's open block has no limit."""
PAUSE_MS = 50
"""Pause of a step with nothing to do, in ms."""
FLUSH_S = 0.5
"""Seconds after which a wait for stored blocks checks again whether the receiver stops."""


@dataclass(frozen=True)
class ReceiverParts:
    """Functions that make the parts of a receiver, in the process where it runs.

    They are pickled with the receiver, so they must be functions of modules.
    """

    join: Callable[[ReceiverSettings, StopFlag], ZooKeeperMembership]
    """Registers a new consumer. Blocks until ZooKeeper answers or the flag is set. Raises ZooKeeperUnreachableError."""
    reader: Callable[[ReceiverSettings], GroupReader]
    """Creates the reader. Sends no request."""
    clock: Callable[[], Clock]
    """Creates the clock."""


class GroupMember:
    """One consumer of a group. A receiver's `onStart` and `onStop` create, start and stop it, one for each start.

    `start` returns at once. Errors that no retry here can resolve (ZooKeeper does not answer, a topic is missing, a block is not stored)
    end the thread and call the receiver's `restart`, once.
    """

    def __init__(
        self,
        settings: ReceiverSettings,
        parts: ReceiverParts,
        host: Receiver,
        acknowledgement: Callable[[int], Acknowledgement],
    ) -> None:
        """Create the member. Sends no request.

        Args:
            settings: the receiver's settings.
            parts: creates the membership, the reader and the clock.
            host: the receiver.
            acknowledgement: creates the acknowledgement of this kind of receiver, from the time in ms.
        """
        self._settings = settings
        self._parts = parts
        self._host = host
        self._clock = parts.clock()
        self._acknowledgement = acknowledgement(self._clock.monotonic_ms())
        self._over = THREADS.event()
        self._restarting = False
        self._membership: ZooKeeperMembership | None = None
        self._reader: GroupReader = parts.reader(settings)
        self._blocks = BlockOffsets(self._store, self._acknowledgement, self._on_not_stored, self._report)
        self._generator: Any = host.createBlockGenerator(self._blocks)
        self._waiting = WaitingRecords(GroupChunk())
        self._out_of_range: list[Partition] = []
        """What the last read has found, to be handled when none of its records waits any more."""
        self._held: set[Partition] = set()
        self._known: set[Partition] | None = None
        self._look_at = 0
        self._retry_at: int | None = None
        self._tries = 0
        self._thread = THREADS.thread(self._run, f"KafkaReceiver-{settings.group}")

    # -- for the receiver

    def start(self) -> None:
        """Start the threads and return at once."""
        self._generator.start()
        self._thread.start()

    def stop(self) -> None:
        """Stop reading. Blocks until all records are stored and acknowledged, as far as possible, and the group is left. Any thread.

        From now on a wait for ZooKeeper lasts STOP_PATIENCE_S at most.
        """
        self._over.set()
        membership = self._membership
        if membership is not None:
            membership.limit_waits()
        self._thread.join()

    # -- its thread

    def _run(self) -> None:
        """Take steps until a stop or an error, then close. Runs on the member's thread. An error restarts the receiver."""
        try:
            while not self._over.is_set() and not self._blocks.failed:
                self.step()
        except IllegalStateError as e:  # the generator accepts no records, because the receiver is being stopped
            if not self._over.is_set():
                self._restart_receiver(str(e), e)
        except Exception as e:
            self._restart_receiver(f"Kafka receiver of {self._settings.as_text()} cannot continue", e)
        finally:
            self.close()

    def step(self) -> None:
        """Join, or share the partitions, or read once, or hand on some of the records that were read. Runs on the member's thread.

        Blocks for about 100 ms or until the next record is permitted, longer while ZooKeeper does not answer. If the membership is over,
        the member leaves, and the next step joins.

        Raises:
            KafkaError: no retry here can resolve it: ZooKeeper cannot be reached, a topic is missing, a partition cannot be read.
            IllegalStateError: the receiver is being stopped, or a block cannot be stored.
        """
        membership = self._membership or self._join()
        try:
            if membership.lost:
                raise OwnershipLostError(membership.consumer, membership.reason)
            if not membership.connected or self._blocks.under_way > MOST_UNDER_WAY:
                self._clock.wait(PAUSE_MS, self._over)
            elif self._must_share(membership):
                self._share(membership)
            elif self._partitions_differ():
                self._leave_to_rejoin(membership)
            else:
                self._read(membership)
                self._acknowledgement.tick(self._clock.monotonic_ms())
        except OwnershipLostError as e:
            if not self._over.is_set():
                self._rejoin(membership, e)

    def close(self) -> None:
        """Store and acknowledge the remaining records, leave the group, and close the clients. Blocks. Errors of storing are logged.

        The member's thread calls this as its last step.
        """
        try:
            self._generator.stop()
            if not self._blocks.failed:
                self._acknowledgement.flush()
        except OwnershipLostError as e:
            logger.warning("%s: the last records are not acknowledged, they will come again: %s", self._settings.as_text(), e)
        except Exception:
            logger.exception("%s: the receiver failed while it stopped", self._settings.as_text())
        finally:
            if self._membership is not None:
                self._membership.leave()
            self._reader.close()

    def _join(self) -> ZooKeeperMembership:
        """Join the group as a new consumer, without partitions. Blocks. Raises ZooKeeperUnreachableError."""
        membership = self._membership = self._parts.join(self._settings, self._over)
        self._held, self._known = set(), None
        self._retry_at, self._tries = None, 0
        if self._over.is_set():  # `stop` came before there was a membership whose waits it could limit
            membership.limit_waits()
        return membership

    def _rejoin(self, membership: ZooKeeperMembership, error: OwnershipLostError) -> None:
        """Stop reading, wait until the block generator has stored or dropped what it has, and leave; the next step joins again.

        The membership is over, so another consumer may read its partitions: nothing is acknowledged. The error is reported to the driver.
        Raises IllegalStateError if the receiver stops meanwhile.
        """
        self._stop_reading()
        self._host.reportError("the Kafka receiver starts again at the offsets in ZooKeeper", error)
        self._await_stored()
        membership.leave()
        self._membership = None

    # -- sharing partitions

    def _must_share(self, membership: ZooKeeperMembership) -> bool:
        """Return whether members or claims may have changed, this membership has shared nothing yet, or it is time to retry claims."""
        now = self._clock.monotonic_ms()
        if membership.take_change() or self._known is None:
            return True
        return self._retry_at is not None and now >= self._retry_at

    def _partitions_differ(self) -> bool:
        """Return whether the topics' partitions changed since they were shared. Asks Kafka every `metadata.max.age.ms`."""
        now = self._clock.monotonic_ms()
        if now < self._look_at:
            return False
        self._look_at = now + self._settings.params.metadata_max_age_ms
        return self._reader.partitions() != self._known

    def _leave_to_rejoin(self, membership: ZooKeeperMembership) -> None:
        """Store and acknowledge all records, and leave; the next step joins as another consumer.

        The others share again only when a consumer comes or goes, and all members must count the same partitions.
        """
        logger.info("%s: the partitions of the topics changed, the group shares them again", membership.consumer)
        self._stop_reading()
        self._commit_ready()
        membership.leave()
        self._membership = None

    def _share(self, membership: ZooKeeperMembership) -> None:
        """Take this member's share of the partitions: release the claims outside of it, and claim the rest. Blocks.

        Raises:
            OwnershipLostError: the registration is gone, or the membership is over.
        """
        now = self._clock.monotonic_ms()
        self._look_at = now + self._settings.params.metadata_max_age_ms
        self._known = self._reader.partitions()
        members = membership.members()
        if membership.consumer not in members:
            raise OwnershipLostError(membership.consumer, "its registration is gone")
        mine = owned_by(membership.consumer, self._settings.topics, owners(members, self._known))
        given_up = self._held - set(mine)
        if given_up:
            self._waiting.keep(mine)
            self._assign({p: at for p, at in self._reader.positions.items() if p in mine})
            self._commit_ready()
            membership.release(given_up)
            self._held -= given_up
        wanted = {p: thread for p, thread in mine.items() if p not in self._held}
        others = membership.claim(wanted)
        self._schedule_retry(others, now)
        self._start_reading(membership, set(wanted) - set(others))

    def _start_reading(self, membership: ZooKeeperMembership, new: set[Partition]) -> None:
        """Read newly claimed partitions from the group's offsets; from those of `auto.offset.reset` where the group has none. Blocks.

        The acknowledgement learns of the latter, and may write them at once.
        """
        self._held |= new
        if not new:
            return
        begins = membership.offsets(new)
        by_reset = self._reader.initial_offsets(new - set(begins))
        if by_reset:
            self._acknowledgement.on_initial_offsets(membership, by_reset)
        logger.info("%s reads %s", membership.consumer, _listed({**begins, **by_reset}))
        self._assign({**self._reader.positions, **begins, **by_reset})

    def _schedule_retry(self, others: dict[Partition, str], now: int) -> None:
        """Schedule the next try to claim partitions that others hold, after `rebalance.backoff.ms`.

        When a claim is released, the next try comes at once. Reports an error, once, after `rebalance.max.retries` retries.
        """
        if not others:
            self._retry_at, self._tries = None, 0
            return
        self._retry_at = now + self._settings.rebalance_backoff_ms
        self._tries += 1
        if self._tries == self._settings.rebalance_retries + 1:
            held = ", ".join(f"{topic}-{number} by {holder or 'somebody'}" for (topic, number), holder in sorted(others.items())[:5])
            self._host.reportError(
                f"after {self._tries} tries other consumers still hold partitions of this one ({held}): it continues to try. They are free "
                "when those consumers release them, or their ZooKeeper sessions end."
            )

    def _assign(self, positions: dict[Partition, int]) -> None:
        """Read only these partitions, from these positions, unless the reader has just these already."""
        if positions != self._reader.positions:
            self._reader.assign(positions)

    def _stop_reading(self) -> None:
        """Read no partition any more, and drop the records that were read and not handed on: their offsets are not acknowledged."""
        self._reader.assign({})
        self._waiting.keep(())
        self._out_of_range = []

    # -- reading

    def _read(self, membership: ZooKeeperMembership) -> None:
        """Read a chunk of records unless some wait, and hand on those that are permitted. Pauses without partitions.

        When no record waits any more, partitions whose position was outside of the log go on by `auto.offset.reset`.
        """
        if not self._held:
            self._clock.wait(PAUSE_MS, self._over)
            return
        if not self._waiting:
            chunk = self._reader.read(self._chunk_limit())
            self._waiting, self._out_of_range = WaitingRecords(chunk), chunk.out_of_range
        if self._waiting:
            self._hand_on(membership)
        if self._out_of_range and not self._waiting:
            partitions, self._out_of_range = [p for p in self._out_of_range if p in self._held], []
            self._resume_by_reset(membership, partitions)

    def _hand_on(self, membership: ZooKeeperMembership) -> None:
        """Give the block generator the records that the rate limit of this moment permits, with their offsets. Blocks for the first one.

        The rate may have come, or changed, while they were read. Without a limit all enter at once.
        """
        records, offsets = self._waiting.take(self._generator.take_permits(len(self._waiting)))
        progress = ReadProgress(membership, dict(offsets))
        self._generator.add_permitted(records, progress)
        self._acknowledgement.on_handed_over(progress)

    def _chunk_limit(self) -> int:
        """Return the largest number of records of the next read.

        It is small under a rate limit: records that are not permitted yet wait in the log, not here.
        """
        limit = self._generator.getCurrentLimit()
        return MOST_A_READ if limit is None else max(1, min(MOST_A_READ, limit // 10))

    def _resume_by_reset(self, membership: ZooKeeperMembership, partitions: Collection[Partition]) -> None:
        """Replace offsets outside of the log by those of `auto.offset.reset`, as the old consumer does. Blocks. Logs a warning for each.

        Raises:
            KafkaConfigError: `auto.offset.reset` is `none`.
        """
        begins = self._reader.initial_offsets(set(partitions))
        for partition, at in sorted(begins.items()):
            earliest, latest = self._reader.log_range(partition)
            topic, number = partition
            logger.warning(
                "%s-%d: offset %d of group %s is out of range, the log has [%s, %s): reading continues at %d, by auto.offset.reset",
                topic,
                number,
                self._reader.positions[partition],
                self._settings.group,
                earliest,
                latest,
                at,
            )
        self._commit_ready()
        self._acknowledgement.on_initial_offsets(membership, begins)
        self._reader.assign({**self._reader.positions, **begins})

    # -- storing

    def _commit_ready(self) -> None:
        """Block until all records are stored, and write the offsets that are ready.

        Raises:
            OwnershipLostError: the membership is over.
            IllegalStateError: the receiver stops, or a block cannot be stored.
        """
        self._await_stored()
        if not self._blocks.failed:
            self._acknowledgement.flush()

    def _await_stored(self) -> None:
        """Block until all records are stored. Raises IllegalStateError if the receiver stops or a block cannot be stored."""
        while not self._blocks.wait_until_stored(FLUSH_S) and not self._over.is_set() and not self._blocks.failed:
            pass
        if self._over.is_set() or self._blocks.failed:
            raise IllegalStateError("the Kafka receiver is being stopped", state="stopping")

    def _store(self, records: list[Any], metadata: Any) -> None:
        """Store a block by the receiver's `storeAll`. Runs on the generator's thread."""
        self._host.storeAll(records, metadata)

    def _on_not_stored(self, message: str, error: BaseException) -> None:
        """Restart the receiver if no further block may be stored; otherwise report the error. Runs on the generator's thread."""
        if self._blocks.failed:
            self._restart_receiver(f"{message}; the receiver goes back to the offsets in ZooKeeper", error)
        else:
            self._host.reportError(message, error)

    def _report(self, message: str, error: BaseException) -> None:
        """Report an error of the block generator to the driver."""
        self._host.reportError(message, error)

    def _restart_receiver(self, message: str, error: BaseException) -> None:
        """Call the receiver's `restart`, unless it was called before or the receiver is being stopped. Any thread."""
        if not self._restarting and not self._over.is_set():
            self._restarting = True
            self._host.restart(message, error)


def _listed(offsets: dict[Partition, int], most: int = 8) -> str:
    """Return offsets as a text for log lines, `most` partitions of them."""
    names = [f"{topic}-{number} from {at}" for (topic, number), at in sorted(offsets.items())]
    return ", ".join(names[:most]) + (f" … ({len(names)} partitions)" if len(names) > most else "")


class WaitingRecords:
    """The records of one chunk, which are taken from the front. Used by one thread.

    If all are taken at once, their order is that of the chunk, and nothing is computed for a record. Otherwise the partitions take turns,
    a record each, so that a full partition does not keep back the others. The records of a partition keep their order.
    """

    def __init__(self, chunk: GroupChunk) -> None:
        self._chunk = chunk
        self._left: deque[tuple[Record, Partition, int]] | None = None
        """Each record with its partition and offset, in the order of the turns; None as long as none was taken."""

    def __len__(self) -> int:
        return len(self._chunk.records) if self._left is None else len(self._left)

    def take(self, count: int) -> tuple[list[Record], Offsets]:
        """Remove the first records.

        Args:
            count: how many; no more than wait.

        Returns:
            The records, and the next offset of each partition that has some among them.
        """
        if self._left is None and count == len(self):
            chunk, self._chunk = self._chunk, GroupChunk()
            return chunk.records, chunk.offsets
        left = self._in_turn()
        taken = [left.popleft() for _ in range(count)]
        return [record for record, _, _ in taken], {partition: offset + 1 for _, partition, offset in taken}

    def keep(self, partitions: Collection[Partition]) -> None:
        """Drop the records of all other partitions. Their offsets were handed to nobody, so they are read again."""
        if len(self):
            self._left = deque(entry for entry in self._in_turn() if entry[1] in partitions)

    def _in_turn(self) -> deque[tuple[Record, Partition, int]]:
        """Return what waits, in the order of the turns."""
        if self._left is None:
            chunk, self._chunk = self._chunk, GroupChunk()
            lines = dict[Partition, deque[tuple[Record, Partition, int]]]()
            for record, (partition, offset) in zip(chunk.records, chunk.places(), strict=True):
                lines.setdefault(partition, deque()).append((record, partition, offset))
            self._left, waiting = deque(), deque(lines.values())
            while waiting:
                line = waiting.popleft()
                self._left.append(line.popleft())
                if line:
                    waiting.append(line)
        return self._left
