"""One writer: a driver that starts takes the next epoch by create-if-absent; an older one finds out before it submits."""

from __future__ import annotations

import uuid

from kstream.checkpoint import format, names
from kstream.errors import AlreadyExistsError, FencedError, StorageError
from kstream.storage import FileStore


def newest_epoch(store: FileStore) -> int:
    """The highest epoch taken so far; 0 if none was."""
    numbers = (names.parse_epoch(name) for name in store.list())
    return max((number for number in numbers if number is not None), default=0)


def take_epoch(store: FileStore, at_ms: int) -> int:
    """Takes and returns the next epoch; from now on every driver with a lower one is fenced. Called once at start.

    The records are kept for ever (one a start): were epoch N + 1 deleted, a driver of epoch N could not find it.
    """
    number = newest_epoch(store) + 1
    while True:
        try:
            store.create(names.epoch(number), format.encode("epoch", {"epoch": number, "at": at_ms, "nonce": uuid.uuid4().hex}))
            return number
        except AlreadyExistsError:
            number += 1


def _newest_or(store: FileStore, known: int) -> int:
    """For the message only: that somebody has taken over is known, whatever becomes of this request."""
    try:
        return newest_epoch(store)
    except StorageError:
        return known


def probe(store: FileStore, epoch: int) -> None:
    """FencedError if another driver has taken over from the one of `epoch`. One small read."""
    if store.exists(names.epoch(epoch + 1)):
        newer = _newest_or(store, epoch + 1)
        raise FencedError(
            f"another driver has taken {store.url} (epoch {newer}, this one has {epoch}): this driver submits nothing more. "
            "Stop one of the two.",
            path=store.url,
            epoch=epoch,
            newer_epoch=newer,
        )
