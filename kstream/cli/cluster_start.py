"""ClusterStart: what `kstream run` does for a cluster before the first batch: Spark's options, the executors' Python, and their check."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kstream import connectors
from kstream.cli.job import find_modules
from kstream.spark.checkpoint_store import open_checkpoint
from kstream.spark.executor_questions import questions_about
from kstream.spark.submit_args import SUBMIT_ARGS, SubmitOptions, given_names
from kstream.storage import LocalFileStore

if TYPE_CHECKING:
    from pyspark import SparkContext

    from kstream.context import StreamingContext

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ClusterStart:
    """The start of a driver whose executors may be other machines. One thread, that of the command.

    Attributes:
        submit: the options for Spark.
        python: the Python that was chosen for the executors; None if the user has said which.
    """

    submit: SubmitOptions
    python: str | None

    @classmethod
    def prepare(cls, submit: SubmitOptions) -> ClusterStart:
        """Set what the SparkContext that `setup` makes will read: the options, the Python of the workers, and the path of modules.

        Call it before the job is imported, and before this process has a JVM.
        """
        from kstream.spark.workers_python import VARIABLE, chosen_python

        submit.apply()
        find_modules(submit.py_files)
        python = chosen_python(os.environ, given_names(os.environ.get(SUBMIT_ARGS, ""), os.environ), submit.archives)
        if python is not None:
            os.environ[VARIABLE] = python
        return cls(submit, python)

    def check(self, context: StreamingContext, path: str) -> None:
        """Ask the executors whether they can run the tasks of a context that is about to start. Blocks. Does nothing in local mode.

        Args:
            context: the context.
            path: its checkpoint, which the executors must reach if there is state.

        Raises:
            ConfigurationError, MissingDependencyError: they cannot.
        """
        from kstream.context.factories import services_of_context
        from kstream.spark.executor_check import Needs, check_executors
        from kstream.spark.jvm_log import quiet_checkpoint_warning
        from kstream.spark.spark_context import dump_functions
        from kstream.spark.workers_python import is_local_master

        sc = context.sparkContext
        if self.submit.master and sc.master != self.submit.master:
            logger.warning(
                "--master %s has no effect, the job runs on %s: its SparkConf has a master, and that wins. Remove setMaster from the job",
                self.submit.master,
                sc.master,
            )
        chosen = self.settle_python(sc)
        if is_local_master(sc.master):
            return
        graph = services_of_context(context).graph
        try:
            functions = dump_functions([function.value for function in graph.recorder.worker_functions])
        except Exception:  # the start names the function that cannot be pickled
            functions = b""
        modules, by_default = connectors.modules_of_workers(graph.input_streams), chosen and self.python == sys.executable
        if not graph.active_states():
            check_executors(sc, Needs(modules, functions), by_default)
            return
        store = open_checkpoint(path)
        with questions_about(store) as question:
            well = check_executors(sc, Needs(modules, functions, question), by_default)
        if well and isinstance(store, LocalFileStore):
            quiet_checkpoint_warning(sc)

    def settle_python(self, sc: SparkContext) -> bool:
        """Let local workers run the driver's Python where an archive's was chosen: nothing is unpacked for them.

        Returns:
            Whether the Python of the workers is one that was chosen here.
        """
        from kstream.spark.workers_python import SETTING, is_local_master, set_workers_python

        chosen = self.python is not None and sc.getConf().get(SETTING) is None
        if chosen and is_local_master(sc.master):
            set_workers_python(sc, sys.executable)
        return chosen
