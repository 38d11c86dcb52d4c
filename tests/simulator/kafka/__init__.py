"""A simulated Kafka for `tests.simulator`: what brokers do to a stream, by a seed, without a broker.

One idea: the real direct stream and the real reader meet a cluster that is a few lists. Leaders move, brokers fall silent, retention
removes what was not read yet, unclean elections cut a log and other records take the offsets, partitions and topics come and go.

    python -m tests.simulator --source kafka --schedules 1000
"""

from tests.simulator.kafka.cluster import Hazard
from tests.simulator.kafka.source import KafkaSource

__all__ = ["Hazard", "KafkaSource"]
