"""The HTTP server of a driver's ports: one for metrics, one for the page. Each port has its own address.

One idea: a room that shows something says in a Site what is at which path, and in which form errors are. Who may ask, which methods there
are, and what an error becomes is decided here, once. The files:

    messages     Request, Answer, and HttpError, which a handler raises (pure)
    access       who may ask: names of the server, tokens, the answers to wrong ones
    router       Site: the routes of a port as a table; Router: from a request to its answer
    http_server  HttpServer: the port, its connections and their threads
"""
