"""The plan log: the input data of each batch, durable before the batch runs.

One idea: a batch has a plan, a small JSON record that is created before the first job may start and never changed. So a restart
runs a pending batch again with the very same ranges. Under a checkpoint's path:

    meta                              format, zero time, batch interval
    epoch-N                           one a driver's start; the highest is the writer, older ones are fenced
    plans/<time>-<epoch>              what each input gives to the batch; created before it runs
    done/<time>-<epoch of its plan>   the batch's jobs all succeeded; how many records each input gave; which files hold its state
    failed/<time>-<plan's>-<run's>    the batch failed in that driver's life
    given-up/<time>-<epoch>           the ledger: failed too often, never run again
    lost/<time>-<plan's>-<run's>      the ledger: records that were gone before the batch could read them
    forgotten/<time>-<epoch>          plans that --forget-batch set aside; epoch 0: the plan was missing, and the user continues without it
    history/<first>-<last>-<epoch>    plans that no restart needs any more, many to a file (see history.py)
    adopted/<epoch>                   the plans that its driver found: older epochs' plans that are not among them never ran
    state/<time>-<epoch>-<stream>-<partition>-<nonce>
                                      a partition of a stream's state (see state_format.py); it counts only if a completion names it
    gone-states/<epoch>               states whose streams that driver's program did not have
    kept-offsets/<epoch>              where streams stood in partitions that the job no longer reads (see input_records.py)
    connections                       parameters of the inputs that are no secrets, for commands (see input_records.py)
    graph                             only under recovery=graph: the operators and the user's functions (see stored_graph.py)
"""

from kstream.checkpoint.plan_log import PlanLog, take_epoch
from kstream.checkpoint.reader import LogContents, Meta, read_log

__all__ = ["LogContents", "Meta", "PlanLog", "read_log", "take_epoch"]
