"""The Kafka stream by a receiver: `KafkaUtils.createStream`. ZooKeeper holds the partition owners and the offsets of the group.

zookeeper_layout     pure: the nodes of Kafka's 0.8 consumer, and the owner of each partition
receiver_settings    pure: the arguments of createStream, checked on the driver
zookeeper_offsets    the only import of kazoo: a membership is a session
group_reader         records in chunks, by the connector's own consumer
stored_offsets       the offsets in each block, and the time to write them
group_member         one thread: join, share partitions, read, release
kafka_receiver       the two receivers (offsets on a timer, or after storing), and their stream
"""

from kstream_kafka.zookeeper.kafka_receiver import KafkaReceiver, ReliableKafkaReceiver

__all__ = ["KafkaReceiver", "ReliableKafkaReceiver"]
