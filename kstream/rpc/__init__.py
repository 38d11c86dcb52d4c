"""Messages and blocks between the driver and what runs on executors, over TCP.

One idea: whoever started the other process gave it a token, and nobody without it is answered. The driver makes one token for each start
of a context and hands it over inside the tasks, which nobody but Spark carries. Each connection begins with a handshake of fixed size, in
which both ends prove that they have the token. Nothing else is read before, so an unauthenticated client fills no memory. With the token
may go a certificate that all servers of the context share: then everything is encrypted, and a server without its key is none. A message is
a name and some bytes; a block is a name and chunks of bytes. Sizes are bounded on both sides, before a body is read.

    credentials   RpcCredentials: token, certificate and key, and their making
    encryption    TLS contexts for these
    wire          frames on a connection
    handshake     both ends prove the token; the count of refused connections
    server        RpcServer: answers messages and keeps blocks by functions it is given
    client        RpcClient: the other end; OSError becomes an RpcError
"""

from kstream.rpc.client import RpcClient
from kstream.rpc.credentials import RpcCredentials
from kstream.rpc.server import Handler, RpcServer

__all__ = ["Handler", "RpcClient", "RpcCredentials", "RpcServer"]
