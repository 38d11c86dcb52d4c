"""The protocol of the exactly-once Kafka sink under a seed: thousands of lives of an output on a fake of Kafka, in one process.

One idea: the real KafkaOutput, KafkaPartitionWriter, ReceiptsTopic and Receipts meet brokers that are a few lists, and everything that
decides the order of things is one random number generator. Drivers and tasks die, stand still and come back; tasks are copied; commits
and fences arrive late or never; leaders of yesterday answer; topics are compacted, deleted and made anew; checkpoints are restored and
copied. After each life every number must be there once, and every refusal must have had its reason.

    python -m tests.kstream_kafka.sink.simulation --seed 4             # the trace of one life
    python -m tests.kstream_kafka.sink.simulation --lives 100000

    turns           processes that take turns, and the seed that decides
    broker          logs, transactions, compaction (no chance, no waiting)
    clients         Transaction, TopicReader, driver client and producer on that broker: each request is a step
    checkpoint      epochs, plans and completions, as a driver finds them
    tasks           Spark's part: attempts, copies, failures
    driver          a driver with the real output
    story           what a life has in common with one of a query: drivers one after the other, and what the user does
    kinds           what the user does in a life, which refusals are right then, and how it must end
    report          what lives came to, and what a command prints of them
    life            one seed's story and the verdict; `run_lives`
    stage           puts the simulated parts into the modules of the sink
    planted         bugs that must be found
"""

from .kinds import KINDS, Kind
from .life import run_life, run_lives
from .report import LifeOutcome
from .turns import Chances

__all__ = ["KINDS", "Chances", "Kind", "LifeOutcome", "run_life", "run_lives"]
