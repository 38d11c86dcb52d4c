"""The page of a driver, and the same figures as JSON (Spark's streaming tab). Off unless `spark.streaming.kstream.ui.enabled` is set.

One idea: a page source says how things are at one moment, the server shows it, and no batch waits for either. The page asks every two
seconds; nobody who looks costs nothing. What is kept has bounds: whole facts of few batches, a small row of more, an hour in buckets. The
files:

    forms           the forms of the JSON: each answer and each part of one, as TypedDicts
    page_source     PageSource: what the page shows at one moment; a living driver has one, and a checkpoint has one
    ledger_forms    the ledger as the page shows it: a sentence for each stream of an entry (pure)
    access          who may see the page: the token, the answers to wrong ones, the names of the server
    ui_server       UiServer: the port

The context imports this room only if the page is enabled.
"""
