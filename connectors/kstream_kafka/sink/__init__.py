"""The Kafka sink: each partition of a batch is one transaction, which has the records and a receipt.

producer_record    ProducerRecord, and how a record of a stream becomes one
spool              what a task has encoded, until all of it is written
receipt            the receipt of a partition and the fence of a driver, as bytes (pure)
receipts           where the receipts of an output are, and which driver may write
receipts_topic     the topic of the receipts, as the driver makes it and takes it over
partition_writer   the tasks' half, exactly once
at_least_once      the tasks' half, at least once
kafka_output       the driver's half, an Output
"""
