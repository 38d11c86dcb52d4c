"""Messages and blocks between the driver and what runs on executors, over Arrow Flight.

One idea: whoever started the other process gave it a token, and nobody without it is answered. The driver makes one token for each start
of a context and hands it over inside the tasks, which nobody but Spark carries; a call without it is refused before its body is looked at,
counted and logged. With the token may go a certificate that all servers of the context share: then everything is encrypted, and a server
without its key is none. A message is a name and some bytes; a block is a name and chunks of bytes. Sizes are bounded on both sides.

    credentials   RpcCredentials: token, certificate and key, and their making
    token         comparing tokens: the middleware that asks for them
    server        RpcServer: answers messages and keeps blocks by functions it is given
    client        RpcClient: the other end; what Flight raises becomes an RpcError

Needs pyarrow, so nothing of this is imported before receivers run on executors.
"""

from kstream.rpc.client import RpcClient
from kstream.rpc.credentials import RpcCredentials
from kstream.rpc.server import Handler, RpcServer

__all__ = ["Handler", "RpcClient", "RpcCredentials", "RpcServer"]
