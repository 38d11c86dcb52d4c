"""The life of a batch: the JobGenerator plans and generates it, the JobScheduler runs it, the listener bus reports it.

One idea: a batch moves in one direction: planned → plan durable → submitted → run → completion durable → reported → cleaned up. The
generator's thread owns the first half, the scheduler's the second; they exchange messages, not locks.
"""

from kstream.scheduler.batch_planner import JobGeneratorParts
from kstream.scheduler.job_generator import JobGenerator
from kstream.scheduler.job_scheduler import JobScheduler, JobSchedulerParts
from kstream.scheduler.listener_bus import StreamingListenerBus

__all__ = ["JobGenerator", "JobGeneratorParts", "JobScheduler", "JobSchedulerParts", "StreamingListenerBus"]
