"""GroupMember: the life of one consumer of a group – join, share the partitions, read, hand over, and begin anew when its session is lost.

All decisions are made by one thread, in steps (`step`); the block generator's threads store and acknowledge.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from kstream.clock import Clock, StopFlag
from kstream.errors import IllegalStateError
from kstream.loop import THREADS
from kstream.receiver import Receiver
from kstream_kafka.client.ports import Partition
from kstream_kafka.errors import OwnershipLostError
from kstream_kafka.zookeeper.group_reader import GroupReader
from kstream_kafka.zookeeper.receiver_settings import ReceiverSettings
from kstream_kafka.zookeeper.stored_offsets import Acknowledgement, OffsetsOfBlocks, Read
from kstream_kafka.zookeeper.zookeeper_layout import owned_by, owners
from kstream_kafka.zookeeper.zookeeper_offsets import ZooKeeperMembership

logger = logging.getLogger("kstream.kafka")

MOST_A_READ = 2_000
"""More at once is slower: the garbage collector then passes over records that are still to be handed over."""
MOST_UNDER_WAY = 250_000
"""Records read and not stored yet. With more of them nothing is read: a generator's open block has no limit of its own."""
PAUSE_MS = 50
FLUSH_S = 0.5
"""How often a wait for blocks to be stored looks whether the receiver is to stop."""


@dataclass(frozen=True)
class Parts:
    """The parts of a receiver, made in the process where it runs. Functions of modules, because they are pickled with the receiver."""

    join: Callable[[ReceiverSettings, StopFlag], ZooKeeperMembership]
    """Registers a new consumer. Blocks until ZooKeeper answers or the flag is set. Raises ZooKeeperUnreachableError."""
    reader: Callable[[ReceiverSettings], GroupReader]
    clock: Callable[[], Clock]


class GroupMember:
    """Made, started and stopped by a receiver's `onStart` and `onStop`; one for each start.

    `start` returns at once. What cannot be got over here – ZooKeeper that is not there, a topic that is missing, a block that is not
    stored – ends the thread and calls the host's `restart`, once.
    """

    def __init__(
        self, settings: ReceiverSettings, parts: Parts, host: Receiver, acknowledgement: Callable[[int], Acknowledgement]
    ) -> None:  # fmt: skip
        """`acknowledgement(now in ms)` makes the way of this receiver."""
        self._settings = settings
        self._parts = parts
        self._host = host
        self._clock = parts.clock()
        self._acknowledgement = acknowledgement(self._clock.monotonic_ms())
        self._over = THREADS.event()
        self._restarting = False
        self._membership: ZooKeeperMembership | None = None
        self._reader: GroupReader = parts.reader(settings)
        self._blocks = OffsetsOfBlocks(self._store, self._acknowledgement, self._not_stored, self._report)
        self._generator: Any = host.createBlockGenerator(self._blocks)
        self._held: set[Partition] = set()
        self._known: set[Partition] | None = None
        self._look_at = 0
        self._try_again_at: int | None = None
        self._tries = 0
        self._thread = THREADS.thread(self._run, f"KafkaReceiver-{settings.group}")

    # -- for the receiver

    def start(self) -> None:
        self._generator.start()
        self._thread.start()

    def stop(self) -> None:
        """Reads nothing more; returns when what was read is stored and acknowledged, as far as that is possible, and the group is left."""
        self._over.set()
        membership = self._membership
        if membership is not None:
            membership.hurry()
        self._thread.join()

    # -- its thread

    def _run(self) -> None:
        try:
            while not self._over.is_set() and not self._blocks.failed:
                self.step()
        except IllegalStateError as e:  # the generator takes nothing any more: the receiver is being stopped
            if not self._over.is_set():
                self._give_up(str(e), e)
        except Exception as e:
            self._give_up(f"Kafka receiver of {self._settings.as_text()} cannot go on", e)
        finally:
            self.close()

    def step(self) -> None:
        """Joins, or shares the partitions anew, or reads once. Blocks for a tenth of a second or so, longer while ZooKeeper is away."""
        if self._membership is None:
            self._join()
        membership = self._membership
        assert membership is not None
        try:
            if membership.lost:
                raise OwnershipLostError(membership.consumer, membership.reason)
            if not membership.connected or self._blocks.under_way > MOST_UNDER_WAY:
                self._clock.wait(PAUSE_MS, self._over)
            elif self._must_share(membership):
                self._share(membership)
            elif self._partitions_differ():
                self._come_again(membership)
            else:
                self._read(membership)
                self._acknowledgement.tick(self._clock.monotonic_ms())
        except OwnershipLostError as e:
            if not self._over.is_set():
                self._begin_anew(membership, e)

    def close(self) -> None:
        """The end of the thread: what is under way gets stored, the group is left."""
        try:
            self._generator.stop()
            if not self._blocks.failed:
                self._acknowledgement.settle()
        except OwnershipLostError as e:
            logger.warning("%s: what was read last is not acknowledged, it will come again: %s", self._settings.as_text(), e)
        except Exception:
            logger.exception("the end of the receiver of %s", self._settings.as_text())
        finally:
            if self._membership is not None:
                self._membership.leave()
            self._reader.close()

    def _join(self) -> None:
        self._membership = self._parts.join(self._settings, self._over)
        self._held, self._known = set(), None
        self._try_again_at, self._tries = None, 0
        if self._over.is_set():  # stopped meanwhile, and could not be told
            self._membership.hurry()

    def _begin_anew(self, membership: ZooKeeperMembership, error: OwnershipLostError) -> None:
        """Another may read its partitions from now on: stops reading, throws away or stores what is under way, and leaves."""
        self._reader.assign({})
        self._host.reportError("the Kafka receiver begins anew at the offsets in ZooKeeper", error)
        self._flush()
        membership.leave()
        self._membership = None

    # -- sharing partitions

    def _must_share(self, membership: ZooKeeperMembership) -> bool:
        now = self._clock.monotonic_ms()
        if membership.take_change() or self._known is None:
            return True
        return self._try_again_at is not None and now >= self._try_again_at

    def _partitions_differ(self) -> bool:
        """Whether the topics have other partitions than when they were shared; looks every `metadata.max.age.ms`."""
        now = self._clock.monotonic_ms()
        if now < self._look_at:
            return False
        self._look_at = now + self._settings.params.metadata_max_age_ms
        return self._reader.partitions() != self._known

    def _come_again(self, membership: ZooKeeperMembership) -> None:
        """Leaves, to come back as another consumer: the others look only when somebody comes or goes, and all must count the same."""
        logger.info("%s: the topics have other partitions now, the group shares them anew", membership.consumer)
        self._reader.assign({})
        self._settle()
        membership.leave()
        self._membership = None

    def _share(self, membership: ZooKeeperMembership) -> None:
        now = self._clock.monotonic_ms()
        self._look_at = now + self._settings.params.metadata_max_age_ms
        self._known = self._reader.partitions()
        members = membership.members()
        if membership.consumer not in members:
            raise OwnershipLostError(membership.consumer, "its registration is gone")
        mine = owned_by(membership.consumer, self._settings.topics, owners(members, self._known))
        given_up = self._held - set(mine)
        if given_up:
            self._read_on({p: at for p, at in self._reader.positions.items() if p in mine})
            self._settle()
            membership.release(given_up)
            self._held -= given_up
        wanted = {p: thread for p, thread in mine.items() if p not in self._held}
        others = membership.claim(wanted)
        self._note(others, now)
        self._take(membership, set(wanted) - set(others))

    def _take(self, membership: ZooKeeperMembership, new: set[Partition]) -> None:
        """Begins with partitions just claimed, where the group stands."""
        self._held |= new
        if not new:
            return
        begins = membership.offsets(new)
        by_reset = self._reader.starts(new - set(begins))
        if by_reset:
            self._acknowledgement.begun_at(membership, by_reset)
        logger.info("%s reads %s", membership.consumer, _listed({**begins, **by_reset}))
        self._read_on({**self._reader.positions, **begins, **by_reset})

    def _note(self, others: dict[Partition, str], now: int) -> None:
        """Claims that others still hold are asked for again: when one is let go, and every `rebalance.backoff.ms`."""
        if not others:
            self._try_again_at, self._tries = None, 0
            return
        self._try_again_at = now + self._settings.rebalance_backoff_ms
        self._tries += 1
        if self._tries == self._settings.rebalance_retries + 1:
            held = ", ".join(f"{topic}-{number} by {who or 'somebody'}" for (topic, number), who in sorted(others.items())[:5])
            self._host.reportError(
                f"after {self._tries} tries other consumers still hold partitions of this one ({held}): it goes on asking. They are free "
                "when those consumers let go, or their ZooKeeper sessions end."
            )

    def _read_on(self, positions: dict[Partition, int]) -> None:
        if positions != self._reader.positions:
            self._reader.assign(positions)

    # -- reading

    def _read(self, membership: ZooKeeperMembership) -> None:
        if not self._held:
            self._clock.wait(PAUSE_MS, self._over)
            return
        chunk = self._reader.read(self._most())
        if chunk.records:
            read = Read(membership, chunk.offsets)
            self._generator.addMultipleDataWithCallback(chunk.records, read)
            self._acknowledgement.handed_over(read)
        if chunk.out_of_range:
            self._reset(membership, chunk.out_of_range)

    def _most(self) -> int:
        """With a rate limit little at a time: a chunk gets into a block as a whole, when the last of it may."""
        limit = self._generator.getCurrentLimit()
        return MOST_A_READ if limit is None else max(1, min(MOST_A_READ, limit // 10))

    def _reset(self, membership: ZooKeeperMembership, partitions: Collection[Partition]) -> None:
        """As the old consumer: an offset that the log does not have is replaced by the end that `auto.offset.reset` says."""
        begins = self._reader.starts(set(partitions))
        for partition, at in sorted(begins.items()):
            earliest, latest = self._reader.log_range(partition)
            logger.warning(
                "%s-%d: offset %d of group %s is out of range, the log has [%s, %s): reading goes on at %d, as auto.offset.reset says",
                *partition, self._reader.positions[partition], self._settings.group, earliest, latest, at,
            )  # fmt: skip
        self._settle()
        self._acknowledgement.begun_at(membership, begins)
        self._reader.assign({**self._reader.positions, **begins})

    # -- what is under way

    def _settle(self) -> None:
        """Returns when all that was read is stored and acknowledged; OwnershipLostError when that cannot be any more."""
        self._flush()
        if not self._blocks.failed:
            self._acknowledgement.settle()

    def _flush(self) -> None:
        while not self._blocks.wait_until_stored(FLUSH_S) and not self._over.is_set() and not self._blocks.failed:
            pass
        if self._over.is_set() or self._blocks.failed:
            raise IllegalStateError("the Kafka receiver is being stopped", state="stopping")

    def _store(self, records: list[Any], metadata: Any) -> None:
        self._host.storeAll(records, metadata)

    def _not_stored(self, message: str, error: BaseException) -> None:
        if self._blocks.failed:
            self._give_up(f"{message}; the receiver goes back to the offsets in ZooKeeper", error)
        else:
            self._host.reportError(message, error)

    def _report(self, message: str, error: BaseException) -> None:
        self._host.reportError(message, error)

    def _give_up(self, message: str, error: BaseException) -> None:
        if not self._restarting and not self._over.is_set():
            self._restarting = True
            self._host.restart(message, error)


def _listed(offsets: dict[Partition, int], most: int = 8) -> str:
    names = [f"{topic}-{number} from {at}" for (topic, number), at in sorted(offsets.items())]
    return ", ".join(names[:most]) + (f" … ({len(names)} partitions)" if len(names) > most else "")
