"""The clients of the brokers: the driver's client, Kafka parameters, security, redaction, and the diagnosis of connections."""
