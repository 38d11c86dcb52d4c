"""The direct stream on the driver: subscription, starting and stopping offsets, next offsets, downtime, commits, the stream itself."""
