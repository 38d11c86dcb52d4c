"""The clients of the brokers: the driver's client, Kafka parameters, security, redaction, and the diagnosis of connections.

ports              Protocols of the clients on the driver and in workers
driver_client      KafkaDriverClient
librdkafka         makes librdkafka's clients, and reads their errors
params             KafkaParams: the user's parameters in librdkafka's terms
java_security      those of TLS and SASL
oauth              the user's `oauth_cb`
redaction          keeps secrets out of messages and logs
connection_watch   why a client cannot connect
"""
