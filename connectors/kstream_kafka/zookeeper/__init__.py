"""The Kafka stream by a receiver: `KafkaUtils.createStream`. One idea: ZooKeeper says who reads what, and how far it was read.

zookeeper_layout, partition_claims    pure: the nodes of Kafka's 0.8 consumer, and whose which partition is
receiver_settings                     pure: what the user gives, checked on the driver
ports                                 what is asked of ZooKeeper and of Kafka
zookeeper_offsets                     the one import of kazoo: a membership is a session
group_reader                          records in chunks, by the connector's own consumer
stored_offsets                        which offsets are in which block, and when they may be written
group_member                          one thread: join, share partitions, read, hand over
kafka_receiver, reliable_kafka_receiver   the two receivers: offsets on a timer, or of blocks that are stored
"""

from kstream_kafka.zookeeper.kafka_receiver import KafkaReceiver, ReliableKafkaReceiver

__all__ = ["KafkaReceiver", "ReliableKafkaReceiver"]
