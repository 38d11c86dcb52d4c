"""StreamingContext and its parts.

One idea: this room puts the others together. The files:

    settings             the settings of the start and the end of a context, and of its clock
    settings_table       the table of all settings
    waiter               the end and the first error of a context, for which `awaitTermination` waits
    uncaught             how Python prints an error of the streams that nobody catches
    batch_lines          a line in the log for each batch
    late_batches         a warning with a setting that would help
    progress             the progress of batches, as JSON values
    changed_durations    the rules of a start with another batch interval, or another window, than the checkpoint has
    checkpoint_opener    CheckpointOpener: makes a driver the writer of its checkpoint, and binds stored streams to those of the job
    unfinished_work      UnfinishedWork: what a graceful stop may leave, and how long it waits
    engine               Engine: the parts of a started context; starts and stops them in their order
    continuous_engine    ContinuousEngine: the parts of a started context with a continuous stream
    engine_opener        EngineOpener: checks what a start needs, opens the checkpoint, and makes the Engine
    spark_parts          SparkParts: what of a running context stands on its SparkContext
    status               the status of this driver, and its record in the checkpoint
    observers            Observers: what watches a running context
    factories            the methods that make streams
    recovery             stores and restores the graph under `recovery=graph`, and pickles functions at every start
    replay               runs stored batches again
    streaming_context    StreamingContext, the public class
"""

from typing import TYPE_CHECKING

from kstream.lazy_names import lazy_names

if TYPE_CHECKING:
    from kstream.context.streaming_context import StreamingContext
    from kstream.context.waiter import StreamingContextState
else:  # at the first use, because they need pyspark, and the settings of the room do not
    __getattr__ = lazy_names(
        __name__,
        {
            "StreamingContext": "kstream.context.streaming_context",
            "StreamingContextState": "kstream.context.waiter",
        },
    )

__all__ = ["StreamingContext", "StreamingContextState"]
