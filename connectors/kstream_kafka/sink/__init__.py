"""The Kafka sink: each partition of a batch is one transaction, which has the records and a receipt.

producer_record    ProducerRecord, and how a record of a stream becomes one
frame_columns      the columns of a frame that is written, and how a row becomes a record
spool              what a task has encoded, until all of it is written
broker_probe       whether the brokers keep what a transaction promises
receipt            the receipt of a partition and the fence of a driver, as bytes (pure)
receipts           where the receipts of an output are, and which driver may write
receipts_topic     the topic of the receipts, as the driver makes it and takes it over
comparison         what differs when a written partition is computed again
audit              what an output tells of a batch that it has written, as bytes (pure)
audit_topic        the topic of these entries, as the driver writes it
partition_writer   the tasks' half, exactly once
at_least_once      the tasks' half, at least once
transactional_ids  how the driver takes the ids of the transactions
query_receipt      the receipt of a batch of a query, as bytes, and what it means for a batch (pure)
query_sources      where the batches of a query begin and end in its Kafka sources
stored_topic       which topic has the receipt of a query, as its checkpoint says
query_batches      each batch of a query of Structured Streaming in one transaction
kafka_output       the driver's half, an Output
frame_output       the same for a DataFrame of a batch
"""
