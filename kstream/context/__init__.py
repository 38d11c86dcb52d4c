"""StreamingContext and its parts: factories, engine, recovery, replay, progress.

One idea: this room puts the others together. `streaming_context` is the public class. `engine` starts and stops the parts of a running
context in their order. `recovery` stores and restores the graph under `recovery=graph`. `replay` runs stored batches again. `waiter` holds
the end and the first error, for which `awaitTermination` waits.
"""

from kstream.context.streaming_context import StreamingContext
from kstream.context.waiter import StreamingContextState

__all__ = ["StreamingContext", "StreamingContextState"]
