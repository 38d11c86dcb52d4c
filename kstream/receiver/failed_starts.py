"""FailedStarts: how often in a row a receiver has ended by an exception before it had started. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from kstream.errors import ReceiverNotStartedError

MOST_FAILED_STARTS = 10
"""So many failed starts in a row fail the job."""


@dataclass(slots=True)
class FailedStarts:
    """The failed starts of one receiver. Its runs call `began`, `raised` and `started`, and then `ended`.

    A run has started when its `onStart` has returned, or when it has stored a block. A run that ends by an exception before that is a
    failed start. A start makes the count 0. A run that ends in any other way leaves it as it is: the driver has refused the run, its
    executor was lost, or its task has never had a core.
    """

    count: int = 0
    """The failed starts since the last start."""
    error: str = ""
    """The exception of the present run in one line; "" if none has ended it."""
    has_started: bool = False
    """Whether the present run has started."""

    def began(self) -> None:
        """A new run begins."""
        self.error, self.has_started = "", False

    def raised(self, error: str) -> None:
        """An exception ends the present run. Of several the first one counts, with the first line of its text."""
        self.error = self.error or error.strip().partition("\n")[0].rstrip(".")

    def started(self) -> None:
        """`onStart` of the present run has returned, or the run has stored a block."""
        self.count, self.has_started = 0, True

    def ended(self) -> bool:
        """The task of the present run has ended.

        Returns:
            Whether this end fails the job. That is so once: later failed starts in the same row do not fail it again.
        """
        if self.has_started or not self.error:
            return False
        self.count += 1
        return self.count == MOST_FAILED_STARTS

    def failure(self, stream: int, receiver: str) -> ReceiverNotStartedError:
        """Return the error that fails the job, after `ended` has said so. `receiver` is the name of the receiver of this stream."""
        return ReceiverNotStartedError(
            f"{self.error}. That is the last of {self.count} errors in a row, each of which has ended the receiver {receiver} before it "
            "had started. Correct what it says, and start the job again. The executors' stderr has the tracebacks",
            stream=stream,
            receiver=receiver,
            times=self.count,
            reason=self.error,
        )
