"""The page of a driver, and the same figures as JSON (Spark's streaming tab). Off unless `spark.streaming.kstream.ui.enabled` is set.

One idea: a page source says how things are at one moment, the server shows it, and no batch waits for either. The page asks every two
seconds; nobody who looks costs nothing. The files:

    settings        the settings of the page
    forms           the forms of the JSON: each answer and each part of one, as TypedDicts
    reference       the reference of these forms, for docs/page.md
    page_source     PageSource: what the page shows at one moment; a living driver has one, and a checkpoint has one
    batch_forms     the forms of batches, inputs and output operations, and of the timeline (pure)
    decisions       Decisions: what the driver has decided or met lately, each in a sentence
    last_reading    LastReading: what was read of a store last, for all that look at it
    driver_ledger   DriverLedger: the ledger of a driver that runs, kept for a few seconds
    stored_batches  StoredBatches: the batches of a driver whose facts it does not keep, from its checkpoint
    driver_source   DriverSource: the page of a driver that runs
    ledger_forms    the ledger as the page shows it: a sentence for each stream of an entry (pure)
    checkpoint_reader  CheckpointReader: reads what the page shows of a checkpoint, and no record twice
    stored_facts       KnownBatch: a batch of a checkpoint; its facts, as listeners of its driver had them, and its row (pure)
    checkpoint_forms   the answers about a checkpoint (pure)
    checkpoint_source  CheckpointSource: the page of a checkpoint, for a driver that is dead or elsewhere
    page_site       what the port of the page shows at which path, and its server
    ui_system       UiSystem: all of them, from the start of a context to its stop

The context imports this room, but for its settings, only if the page is enabled; `kstream page` shows the page of a checkpoint.
"""
