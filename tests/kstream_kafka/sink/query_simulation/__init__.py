"""The protocol of the exactly-once sink of queries under a seed: thousands of lives of a query on a fake of Kafka, in one process.

One idea: the real KafkaStreamWriter and QueryBatches meet the brokers, the clients and the turns of `simulation`. Drivers and the processes
of their commits die, stand still and come back; a commit outlives its driver; what a batch has is divided otherwise at each try; commits
arrive late or never; leaders of yesterday answer; topics are compacted, deleted and made anew; checkpoints are restored, copied and edited
by hand. After each life every number must be there once, each transaction must be one whole batch with its receipt, and the audit must
prove it.

    python -m tests.kstream_kafka.sink.query_simulation --seed 4       # the trace of one life
    python -m tests.kstream_kafka.sink.query_simulation --lives 100000

    checkpoint      Spark's logs of offsets and commits, and what the sink stores beside them
    driver          Spark's part: tasks that spool, and the process of the commits with the real writer
    kinds           what the user does in a life, and which refusals are right then
    life            one seed's story and the verdict; `run_lives`
    stage           puts the simulated parts into the modules of the sink
    planted         bugs that must be found
"""

from .kinds import KINDS, Kind
from .life import run_life, run_lives

__all__ = ["KINDS", "Kind", "run_life", "run_lives"]
