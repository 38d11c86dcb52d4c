"""The direct stream on the driver: topics, starting and stopping offsets, downtime, the input stream itself."""
