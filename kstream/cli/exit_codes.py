"""The exit codes of the commands. Each number has one meaning: RunCode in docs/deployment.md, ReadingCode in docs/monitoring.md."""

from __future__ import annotations

import enum


class RunCode(enum.IntEnum):
    """Why `kstream run` has ended, or the driver that it has started.

    Numbers from 128 up are those of a shell: 128 plus the number of the signal.
    """

    ENDED = 0
    FAILED = 1
    CONFIGURATION = 2
    IMPORT = 3
    REFUSED = 4
    FENCED = 5
    FAILED_BATCH = 6
    LOST_JVM = 7
    INTERRUPTED = 130
    KILLED = 137
    TERMINATED = 143

    @property
    def final(self) -> bool:
        """Whether the supervisor does not start the driver again: the job is at its end, or no restart can help."""
        return self in _FINAL

    @property
    def meaning(self) -> str:
        """Why a driver has ended, as a clause without a full stop."""
        return _MEANINGS[self]

    @classmethod
    def of_status(cls, status: int) -> RunCode:
        """Return the meaning of a process status.

        Args:
            status: as of `subprocess`: an exit code, or minus the number of the signal that has killed the process.
        """
        if status < 0:
            return cls.KILLED
        try:
            return cls(status)
        except ValueError:
            return cls.FAILED


_FINAL = frozenset(
    {
        RunCode.ENDED,
        RunCode.CONFIGURATION,
        RunCode.IMPORT,
        RunCode.REFUSED,
        RunCode.FENCED,
        RunCode.INTERRUPTED,
        RunCode.TERMINATED,
    }
)
_MEANINGS = {
    RunCode.ENDED: "the job has ended",
    RunCode.FAILED: "the driver failed",
    RunCode.CONFIGURATION: "an argument or a setting cannot work",
    RunCode.IMPORT: "the job cannot be imported",
    RunCode.REFUSED: "the checkpoint refuses the start",
    RunCode.FENCED: "another driver has taken the checkpoint",
    RunCode.FAILED_BATCH: "a batch failed",
    RunCode.LOST_JVM: "the driver has lost its JVM",
    RunCode.INTERRUPTED: "SIGINT stopped it",
    RunCode.KILLED: "a signal killed it",
    RunCode.TERMINATED: "SIGTERM stopped it",
}


class ReadingCode(enum.IntEnum):
    """What a command that reads has found: `status`, `page`, `doctor`, `lag`, `ledger`, `history`, `peek`, `tail`, `offsets show`,
    `checkpoint show` and `checkpoint diff`. `stop` ends with them, too: 1 if the driver has not ended in time.

    Click ends with 2, too, for options that it does not know.
    """

    WELL = 0
    """All is well, or the command was not asked to judge."""
    BEHIND = 1
    """Something is behind or failing, or a check warns: a person should look."""
    DEAD = 2
    """No driver runs on the checkpoint."""
    UNREADABLE = 3
    """The question cannot be answered: no checkpoint, a damaged record, a store or a broker that does not answer, a record that is
    gone."""
