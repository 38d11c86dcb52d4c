"""Threads and time, without streams: an event loop, a recurring timer, a pool of threads, and the Runtime that makes threads.

One idea: all decisions are made on one thread with one queue, so they need no locks; the timer only posts events. The files:

    threads           Runtime, which makes threads, queues, events and locks; WorkerPool; Future
    event_loop        EventLoop: one thread that handles posted events in order
    recurring_timer   RecurringTimer: a callback at each multiple of a period
    alarm             Alarm: one callback at a time that is set
"""

from kstream.loop.alarm import Alarm
from kstream.loop.event_loop import EventLoop
from kstream.loop.recurring_timer import RecurringTimer
from kstream.loop.threads import THREADS, Event, Future, Runtime, Thread, WorkerPool, map_in_order

__all__ = ["THREADS", "Alarm", "Event", "EventLoop", "Future", "RecurringTimer", "Runtime", "Thread", "WorkerPool", "map_in_order"]
