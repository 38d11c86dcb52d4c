"""Threads and time, without streams: an event loop, a recurring timer, a pool of threads, and the Runtime that makes threads.

One idea: all decisions are made on one thread with one queue, so they need no locks; the timer only posts events.
"""

from kstream.loop.event_loop import EventLoop
from kstream.loop.recurring_timer import RecurringTimer
from kstream.loop.runtime import THREADS, Event, Runtime, Thread
from kstream.loop.worker_pool import Future, WorkerPool, map_in_order

__all__ = ["THREADS", "Event", "EventLoop", "Future", "RecurringTimer", "Runtime", "Thread", "WorkerPool", "map_in_order"]
