"""Threads and time, no streams: an event loop, a recurring timer, a pool of threads, and the runtime they are made of.

One idea: everything that decides runs on one thread with one queue, so that decisions need no locks; the timer only posts.
"""

from kstream.loop.event_loop import EventLoop
from kstream.loop.recurring_timer import RecurringTimer
from kstream.loop.runtime import THREADS, Event, Runtime, Thread
from kstream.loop.worker_pool import WorkerPool

__all__ = ["THREADS", "Event", "EventLoop", "RecurringTimer", "Runtime", "Thread", "WorkerPool"]
