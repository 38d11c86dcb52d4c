"""The life of a batch: the JobGenerator plans and generates it, the JobScheduler runs it and posts its events to listeners.

One idea: a batch moves in one direction: planned → plan durable → submitted → run → completion durable → reported → cleaned up. The
generator's thread owns the first half, the scheduler's the second; they exchange messages, not locks. A file imports only files above it:

    state_checkpointer   StateCheckpointer: writes, restores and removes the states of streams
    completions          Completions: how batches end; UnfinishedBatches: those that have not succeeded
    job_scheduler        JobScheduler: runs the jobs; JobEnvironment: what Spark does around a job
    planning_outage      PlanningOutage: how long the driver waits for brokers or a store that are away
    batch_planner        BatchPlanner: makes one batch, from the plans of its inputs to its jobs; which missed batches are planned
    job_generator        JobGenerator: ticks, restart, graceful stop, clean-up
"""

from kstream.scheduler.job_generator import JobGenerator, JobGeneratorCallbacks
from kstream.scheduler.job_scheduler import JobScheduler, SchedulerParts

__all__ = ["JobGenerator", "JobGeneratorCallbacks", "JobScheduler", "SchedulerParts"]
