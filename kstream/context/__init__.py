"""StreamingContext and what it is made of: factories, engine, recovery, replay, progress.

One idea: this room puts the others together. `streaming_context` is the public class; `engine` starts and stops the parts of a running
context in their order; `recovery` decides what a restart restores; `replay` runs stored batches once more; `waiter` holds what
`awaitTermination` waits for.
"""

from kstream.context.streaming_context import StreamingContext
from kstream.context.waiter import StreamingContextState

__all__ = ["StreamingContext", "StreamingContextState"]
