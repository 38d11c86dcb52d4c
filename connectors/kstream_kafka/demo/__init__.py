"""`kstream demo`: a stream on an embedded broker, its driver killed in the middle of a batch, and the proof that nothing was lost.

One idea: the demo observes from outside. Broker, feed and driver are separate processes. Whoever wants to see the batches opens the page
of the driver. The proof reads files: the acknowledged orders, the sink, and the attempts at each batch.

    command            `kstream demo`: the options and the report
    stage              the steps of the demo, and its processes
    page               the page of the drivers, in a browser
    journal            the attempts at each batch, as the drivers write them down
    proof              acknowledged orders against sink, attempts and windows    (pure)
    job                the streaming job
    order_feed         orders, and the process that sends them
    embedded_broker    a Kafka in a separate process, and a producer; for tests, too
    broker_command     `kstream broker`: this Kafka by itself, for a first look
    port_forwarder     a port of one's choice that leads to it
"""
