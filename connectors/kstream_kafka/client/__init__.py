"""The clients of the brokers: the driver's client, Kafka parameters, security, redaction, and the diagnosis of connections.

ports              Protocols of the clients on the driver and in workers
driver_client      KafkaDriverClient
admin_requests     AdminRequests: the wait for the responses to the driver's requests
librdkafka         makes librdkafka's clients, and reads their errors
own_thread         calls in threads of their own
params             KafkaParams: the user's parameters in librdkafka's terms
java_security      those of TLS and SASL
oauth              the user's `oauth_cb`
secrets            values from files and functions, and whether newer ones are there
record_producer    RecordProducer: an idempotent producer in a worker, for dead letters
record_sending     the producers of the sink
transaction        Transaction: a transaction of Kafka with a producer of its own
topic_reader       TopicReader: the committed records of a topic up to its end
renewing_client    the driver's client of a stream, replaced when its secrets have changed
schema_registry    SchemaRegistry: a schema registry, asked by confluent_kafka's own client
unknown_ids        UnknownIds: the ids that a schema registry does not know
redaction          keeps secrets out of messages and logs
connection_watch   why a client cannot connect
"""
