"""The plan log: the input data of each batch, durable before the batch runs.

One idea: a batch has a plan, a small JSON record that is created before the first job starts, and never changed. So a restart
runs a pending batch again with the same ranges. `names` lists the records. A file imports only files above it:

    settings         the settings of checkpoints
    given_path       the checkpoint that `kstream run` was given
    names            the names of the records
    declared_types   whether what was made of a record has the types of its class
    format           the stored form of every record, and the fields of a plan
    state_format     the stored form of a state file
    epoch_records    records of which each driver has its own
    stored_graph     the record of a graph, under `recovery=graph`
    input_records    kept offsets, and connections of the inputs
    driver_status    the status record of a driver, for people and monitors
    settled          intervals of plans that were removed above an unfinished batch
    stop_request     asks a driver to stop
    skip_request     asks a batch to leave a record out
    interval_change  the record of a changed batch interval
    reader           read_log, and the takeover of a log by a driver
    binding          binds stored streams to the streams of the graph that starts now
    missing_plans    finds plans that are missing
    outcomes         what became of a batch: its completion and its failures
    history          past plans and the ledger, for people and replays
    query_ledger     the ledger of a query of Structured Streaming
    measured         MeasuredBatches: how fast the last batches were, for a driver that starts
    state_log        the states that completions and records of failures name
    plan_log         PlanLog, the writing side; epochs
    offline          changes that commands make while no driver runs
    sign_of_life     whether a driver lives, by its status record
"""

from kstream.checkpoint.plan_log import BatchLog, NoLog, PlanLog, take_epoch
from kstream.checkpoint.reader import LogContents, Meta, read_log

__all__ = ["BatchLog", "LogContents", "Meta", "NoLog", "PlanLog", "read_log", "take_epoch"]
