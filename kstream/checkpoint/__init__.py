"""The plan log: the input data of each batch, durable before the batch runs.

One idea: a batch has a plan, a small JSON record that is created before the first job starts, and never changed. So a restart
runs a pending batch again with the same ranges. The records under a checkpoint's path:

    meta                              format, zero time, batch interval
    epoch-N                           one per start of a driver; the highest is the writer, lower ones are fenced
    plans/<time>-<epoch>              the data that each input gives to the batch; created before the batch runs
    done/<time>-<epoch of its plan>   completion: the batch's jobs have all succeeded; record counts of each input, files of its state
    failed/<time>-<plan's>-<run's>    the batch failed in that driver's life
    given-up/<time>-<epoch>           the ledger: the batch failed too often and is never run again
    lost/<time>-<plan's>-<run's>      the ledger: records that were gone before the batch could read them
    forgotten/<time>-<epoch>          plans that --forget-batch set aside; epoch 0: the plan was missing, and the user continues without it
    history/<first>-<last>-<epoch>    plans that no restart needs any more, packed (see history.py)
    adopted/<epoch>                   the plans that this epoch's driver found: any other plan of an older epoch never ran
    state/<time>-<epoch>-<stream>-<partition>-<nonce>
                                      a partition of a stream's state (see state_format.py); it counts only if a completion names it
    gone-states/<epoch>               states whose streams that driver's program did not have
    kept-offsets/<epoch>              offsets of partitions that the job no longer reads (see input_records.py)
    connections                       parameters of the inputs, without secrets, for commands (see input_records.py)
    graph                             only under recovery=graph: the operators and the user's functions (see stored_graph.py)
"""

from kstream.checkpoint.plan_log import PlanLog, take_epoch
from kstream.checkpoint.reader import LogContents, Meta, read_log

__all__ = ["LogContents", "Meta", "PlanLog", "read_log", "take_epoch"]
