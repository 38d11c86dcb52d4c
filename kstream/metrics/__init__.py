"""Metrics of a running context for Prometheus, and the same values as JSON. Off unless `spark.streaming.kstream.metrics.port` is set.

One idea: a batch leaves small figures behind, and a scrape reads them. A scrape asks neither a broker nor a store, and what a batch costs
does not grow with the number of partitions or with the past. The files:

    settings            the settings of metrics
    families            each metric with its type, labels and meaning
    measured_store      MeasuredStore: measures the requests of the plan log to its store
    streaming_source    StreamingSource: makes the metrics of one moment from the figures
    metrics_site        what the port of the metrics shows at which path
    metrics_system      MetricsSystem: all of them, from the start of a context to its stop

The room imports prometheus_client, so the context imports this room, but for its settings, only if a port is set.
"""
