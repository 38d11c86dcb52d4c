"""StreamingContext and its parts.

One idea: this room puts the others together. The files:

    waiter               the end and the first error of a context, for which `awaitTermination` waits
    progress             the progress of batches, as JSON values
    checkpoint_opener    CheckpointOpener: makes a driver the writer of its checkpoint, and binds stored streams to those of the job
    engine               Engine: starts and stops the parts of a running context in their order
    factories            the methods that make input streams
    recovery             stores and restores the graph under `recovery=graph`, and pickles functions at every start
    replay               runs stored batches again
    streaming_context    StreamingContext, the public class
"""

from kstream.context.streaming_context import StreamingContext
from kstream.context.waiter import StreamingContextState

__all__ = ["StreamingContext", "StreamingContextState"]
