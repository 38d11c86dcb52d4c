"""Strands: the threads of all simulated drivers, of which exactly one runs at a time, and nobody but `choose` says which.

A strand is a real thread used as a coroutine: it runs until it pauses, then hands the baton to the strand that `choose` names and
waits until it is named again. So product code that blocks (a queue, an event, a clock) runs as it is, and the order of all steps is
a function of what `choose` answers. Threads are kept between schedules: starting one costs more than switching (10 to 30 µs).
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable
from typing import ClassVar

from tests.simulator.errors import SimulationStuckError

PATIENCE_S = 60.0
"""How long the baton may stay with one strand before the schedule is called stuck."""


class Killed(BaseException):
    """The driver of this strand has died: unwind, without an effect."""


class Strand:
    """One thread of a driver. `owner` is the driver's number (0: the world's own)."""

    def __init__(self, name: str, owner: int, target: Callable[[], None]) -> None:
        self.name = name
        self.owner = owner
        self.target = target
        self.ready: Callable[[], bool] | None = None
        """Whether what it waits for is there; None: it could go on at any time."""
        self.deadline: int | None = None
        """When it goes on in any case, in ms of the simulated monotonic clock."""
        self.worker: _Worker | None = None
        self.killed = False
        self.done = False

    def __repr__(self) -> str:
        return f"<Strand {self.owner}/{self.name}>"


class Strands:
    """All strands of one schedule. `choose()` names the next one to run; it is called by whichever thread has the baton."""

    def __init__(self, choose: Callable[[], Strand]) -> None:
        self._choose = choose
        self.main = Strand("world", 0, lambda: None)
        self.main.worker = _Worker(own_thread=True)
        self.current = self.main
        self.living: list[Strand] = [self.main]
        self._failure: BaseException | None = None

    def spawn(self, name: str, owner: int, target: Callable[[], None]) -> Strand:
        """A strand that begins when it is first chosen."""
        strand = Strand(name, owner, target)
        self.living.append(strand)
        return strand

    def pause(self, ready: Callable[[], bool] | None = None, deadline: int | None = None) -> None:
        """The current strand lets others run; returns when it is chosen again. Killed: its driver has died."""
        me = self.current
        if me.killed:
            raise Killed
        me.ready, me.deadline = ready, deadline
        chosen = self._choose()
        if chosen is not me:
            self._hand_over(chosen)
            self._wait(me)
        me.ready = me.deadline = None
        if me is self.main and self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        if me.killed:
            raise Killed

    def kill(self, owner: int) -> None:
        """Every strand of `owner` unwinds as soon as it is chosen; those that never began are gone."""
        for strand in self.living:
            if strand.owner == owner:
                strand.killed = True
        for strand in [s for s in self.living if s.killed and s.worker is None]:
            self._end(strand)

    def _end(self, strand: Strand) -> None:
        strand.done = True
        self.living.remove(strand)

    def _hand_over(self, chosen: Strand) -> None:
        self.current = chosen
        if chosen.worker is None:
            chosen.worker = _Worker.idle.pop() if _Worker.idle else _Worker()
            chosen.worker.take = (self, chosen)
        chosen.worker.go.release()

    def _wait(self, me: Strand) -> None:
        assert me.worker is not None
        if me is not self.main:
            me.worker.go.acquire()
            return
        while not me.worker.go.acquire(timeout=PATIENCE_S):
            raise SimulationStuckError(f"{self.current!r} has not come back for {PATIENCE_S:.0f} s: it blocks outside of the simulation, "
                                       f"perhaps on a lock held over a store call.\n{self._where()}")  # fmt: skip

    def _where(self) -> str:
        worker = self.current.worker
        frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage]
        frame = frames.get(worker.ident) if worker is not None else None
        return "".join(traceback.format_stack(frame)) if frame is not None else ""

    def run(self, strand: Strand) -> Strand | None:
        """On a worker: runs a strand to its end, then chooses; returns the next one if it begins now, else hands over."""
        try:
            strand.target()
        except Killed:
            pass
        except BaseException as e:
            self._failure = e
        self._end(strand)
        try:
            chosen = self.main if self._failure is not None else self._choose()
        except BaseException as e:
            self._failure, chosen = e, self.main
        if chosen.worker is None:
            self.current = chosen
            return chosen
        assert strand.worker is not None
        _Worker.idle.append(strand.worker)  # before the baton is gone: only its holder touches the list
        self._hand_over(chosen)
        return None


class _Worker:
    """A real thread that runs strands, one after the other, for ever."""

    idle: ClassVar[list[_Worker]] = []

    def __init__(self, own_thread: bool = False) -> None:
        self.go = threading.Lock()
        self.go.acquire()
        self.take: tuple[Strands, Strand] | None = None
        self.ident = threading.get_ident()
        if not own_thread:
            threading.Thread(target=self._loop, name="simulated", daemon=True).start()

    def _loop(self) -> None:
        self.ident = threading.get_ident()
        while True:
            self.go.acquire()
            assert self.take is not None
            strands, strand = self.take
            self.take = None
            while (following := strands.run(strand)) is not None:
                following.worker, strand = self, following
