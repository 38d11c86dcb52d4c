"""State, windows and their Spark for `tests.simulator`: what executors, backlogs and restarts do to lineage, blocks and state files.

One idea: the real streams meet RDDs that are lazy as Spark's are. A partition is computed only when a task needs it, from a block on an
executor, from its parents, or from a state file in the simulated store. So a file or a block that is gone too early is missed by the task
that needs it, and a wrong state is read by an output.

    python -m tests.simulator --source states --schedules 10000

    rdds → application      partitions, lineage and shuffles; executors, their blocks, jobs and tasks
    state_rdds, files       mapWithState's RDDs; the writer and reader of state files
    source → checks         the streams, what happens to them, and what must hold of it
"""

from tests.simulator.states.source import StatesSource

__all__ = ["StatesSource"]
