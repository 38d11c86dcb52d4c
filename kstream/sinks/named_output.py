"""NamedOutput: an output that a function of the user writes, as that of `foreachBatch`, and FunctionOutput, which runs the function.

The driver must know such an output before it plans a batch: its batches run in order, their plans name it, and a start without it is
refused. So it has its name at once, and what writes it is made when the function writes it first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from kstream.batch import Json, OutputFigures
from kstream.batch.figures import together
from kstream.batch_time import Time
from kstream.dstream.arguments import check_output_has_run
from kstream.output import Output, OutputBatch, Writer
from kstream.public_call import refused
from kstream.sinks.receipt import check_has_checkpoint

if TYPE_CHECKING:
    from pyspark import RDD

_lock = threading.RLock()
_writable: dict[str, NamedOutput] = {}
"""The outputs of the functions that run now, by name. `_lock` guards it."""


class NamedOutput(Output):
    """An output that a function writes, at most once in a batch.

    Its `write` is called in any thread while the function runs. The driver calls the other methods, as of any output.
    """

    is_ordered = True
    keeps_layout = True
    _driver: Writer
    """Known from `restore` on."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._stored: Json = None
        self._output: Output | None = None
        """What writes; None before the first write of this driver."""
        self._made_of: object = None
        """What `_output` was made of."""
        self._batch: OutputBatch | None = None
        """The batch that may be written now; None if none may, or it is written. `_lock` guards it."""
        self._computes_all = False
        self._failure: BaseException | None = None
        """Why the batch was not written, at this try. `_lock` guards it."""
        self._num_running = 0
        """How many blocks of `noting` run, in any thread. `_lock` guards it."""
        self.figures = OutputFigures()
        """What the write of this try has measured."""

    def restore(self, writer: Writer, stored: Json) -> None:
        """Note who writes now, and the stored outcome. What writes gets both when it is made, at the first write of this driver."""
        check_has_checkpoint(self.name, writer)
        self._driver, self._stored, self._output = writer, stored, None

    def begin(self, batch: OutputBatch, computes_all: bool, call: str) -> None:
        """Let a batch be written from now on.

        Args:
            batch: the batch.
            computes_all: whether an input must report on all of its records.
            call: the name of the public function, for the message.

        Raises:
            RuntimeError: a write of an earlier try still runs.
        """
        with _lock:
            self._check_none_runs(call)
            self._batch, self._computes_all, self._failure = batch, computes_all, None
            self.figures = OutputFigures()
            _writable[self.name] = self

    def end(self, call: str) -> None:
        """Let nothing be written until the next batch. A write that still runs fails this one. `call`: as for `begin`."""
        with _lock:
            self._batch = None
            if _writable.get(self.name) is self:
                del _writable[self.name]
            try:
                self._check_none_runs(call)
            except RuntimeError as e:
                self._failure = self._failure or e

    def _check_none_runs(self, call: str) -> None:
        """Raise RuntimeError if a write still runs. The caller holds `_lock`."""
        if self._num_running:
            raise RuntimeError(
                f"the function of {call} has returned while its write of output {self.name!r} still runs. Join the thread of the write"
            )

    def check(self) -> None:
        """Raise the error of the write of this try, which the function may have caught."""
        with _lock:
            failure = self._failure
        if failure is not None:
            raise failure

    @contextmanager
    def noting(self) -> Generator[None]:
        """Note that a write runs during the `with` block, and note its error: that fails the batch, also if the function catches it.

        The first error counts. A write that still runs when the function has returned is an error, too; see `end`.
        """
        failure: BaseException | None = None
        with _lock:
            self._num_running += 1
        try:
            yield
        except BaseException as e:
            failure = e
            raise
        finally:
            with _lock:
                self._num_running -= 1
                self._failure = self._failure or failure

    def write(self, call: str, make_rdd: Callable[[], RDD[Any]], make: Callable[[], Output], made_of: object) -> None:
        """Write the batch that runs. Blocks until it is written.

        Args:
            call: the name of the public function, for the message.
            make_rdd: make_rdd() returns its records.
            make: make() returns what writes. It is called at the first write, and after another `made_of`.
            made_of: what it is made of.

        Raises:
            ValueError: this output has been written in this batch.
            Exception: of the output or of `make_rdd`.
        """
        with self.noting():
            with _lock:
                batch, self._batch = self._batch, None
            if batch is None:
                raise refused(ValueError(f"{call}: output {self.name!r} is written twice in one batch. Give each frame a name of its own"))
            rdd = make_rdd()
            output = self._made(batch.time, make, made_of)
            partitions = output.prepare(batch, rdd)
            self.figures = output.run(batch, rdd, None if self._computes_all else partitions) or OutputFigures()

    def _made(self, time: Time, make: Callable[[], Output], made_of: object) -> Output:
        """Return what writes: the one before, unless there is none or `made_of` has changed. A new one goes on from what is stored."""
        before = self._output
        if before is not None and made_of == self._made_of:
            return before
        output = make()
        output.restore(self._driver, self._stored if before is None else before.outcome(time))
        self._output, self._made_of = output, made_of
        if before is not None:
            before.stop()
        return output

    def run(self, batch: OutputBatch, rdd: RDD[Any], partitions: Sequence[int] | None) -> None:
        """Never called: a FunctionOutput runs, and its function calls `write`."""
        raise NotImplementedError

    def outcome(self, time: Time) -> Json:
        """See the base class. Until this driver has written the output, what the driver before has stored stays."""
        return self._stored if self._output is None else self._output.outcome(time)

    def committed(self, time: Time) -> None:
        if self._output is not None:
            self._output.committed(time)

    def stop(self) -> None:
        if self._output is not None:
            self._output.stop()


class FunctionOutput(Output):
    """Runs a function of the user, and lets it write outputs meanwhile. An error of such a write fails the batch, also a caught one."""

    def __init__(self, call: str, function: Callable[[Time, RDD[Any]], object], names: Sequence[str]) -> None:
        """
        Args:
            call: the name of the public function, for messages.
            function: function(time, rdd) writes the outputs.
            names: their names.
        """
        self.name = call
        self._function = function
        self._outputs = [NamedOutput(name) for name in names]

    def parts(self) -> Sequence[Output]:
        return self._outputs

    def prepare(self, batch: OutputBatch, rdd: RDD[Any]) -> Sequence[int]:
        """Return no partition: those of the stream are not written. So `run` is told whether an input must report on all of them."""
        return ()

    def run(self, batch: OutputBatch, rdd: RDD[Any], partitions: Sequence[int] | None) -> OutputFigures:
        """Call the user's function, which writes the outputs of this batch. Return what all of them have measured.

        Raises:
            Exception: of the function, or of a write, also if the function has caught it.
        """
        try:
            for output in self._outputs:
                output.begin(batch, partitions is None, self.name)
            check_output_has_run(self.name, self._function(batch.time, rdd))
        finally:
            for output in self._outputs:
                output.end(self.name)
        for output in self._outputs:
            output.check()
        return together(OutputFigures(), (output.figures for output in self._outputs))


def checked_names(call: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of outputs that a call gives.

    Args:
        call: the name of the public function, for the message.
        names: the names.

    Raises:
        TypeError: `names` is no list of texts.
        ValueError: a name is empty or has a comma.
    """
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):  # pyright: ignore
        raise refused(TypeError(f"{call}: outputs must be a list of names, as ['totals'], it is {names!r}"))
    for name in names:
        if not name or "," in name:
            raise refused(ValueError(f"{call}: outputs has {name!r}; give some text without commas"))
    return tuple(names)


@contextmanager
def noting(name: str | None) -> Generator[None]:
    """Note an error of the `with` block for the output of this name, as `NamedOutput.noting`, if a function runs that may write it."""
    with ExitStack() as stack:
        with _lock:  # the output counts the block before its function can end
            found = None if name is None else _writable.get(name)
            if found is not None:
                stack.enter_context(found.noting())
        yield


def writable_output(call: str, name: str) -> NamedOutput:
    """Return the output of a function that runs now. Any thread. ValueError if none has this name. `call`: as for `NamedOutput.write`."""
    with _lock:
        found = _writable.get(name)
    if found is None:
        raise refused(
            ValueError(
                f"{call}: no function of foreachBatch runs that may write output {name!r}. Call it within the function, and name the "
                f"output there: stream.foreachBatch(func, outputs=[{name!r}])"
            )
        )
    return found
