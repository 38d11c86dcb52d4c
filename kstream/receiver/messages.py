"""What driver and executors say to each other about receivers: the names are Spark's, the bodies JSON objects.

Receivers ask, the driver answers. What the driver has to tell a receiver it gives as the answer to `NextCommand`, which it keeps waiting
for a while: so no executor needs a port for it, and a receiver whose driver is gone finds out.
"""

from __future__ import annotations

import json
from typing import Any, Final

REGISTER_RECEIVER: Final = "RegisterReceiver"
"""stream, run, executor, host → accepted, peers. `run` is the number of the try: what an earlier one still says is not heard any more."""
REGISTER_STORE: Final = "RegisterBlockStore"
"""executor, host, port → {}"""
ADD_BLOCK: Final = "AddBlock"
"""stream, run, id, records, executors, metadata, handle (`wal/handles.py`), stored_at (ms) → added"""
REPORT_ERROR: Final = "ReportError"
"""stream, message, error → {}"""
DEREGISTER_RECEIVER: Final = "DeregisterReceiver"
"""stream, run, message, error → {}"""
FIRST_ATTEMPT: Final = "FirstAttemptOfReceiver"
"""stream, stage → runs: whether the first attempt of the task still runs, of which the one that asks is a copy"""
NEXT_COMMAND: Final = "NextCommand"
"""stream, run → command (one of those below, or null), its arguments, and peers: [[executor, host, port], …]"""

STOP_RECEIVER: Final = "StopReceiver"
RESTART_RECEIVER: Final = "RestartReceiver"
UPDATE_RATE_LIMIT: Final = "UpdateRateLimit"
CLEANUP_OLD_BLOCKS: Final = "CleanupOldBlocks"
"""threshold (ms)"""


def to_body(**fields: Any) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def of_body(body: bytes) -> dict[str, Any]:
    return json.loads(body)
