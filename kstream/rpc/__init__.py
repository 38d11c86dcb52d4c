"""Messages and blocks between the driver and what runs on executors, over TCP.

One idea: nobody without the token gets an answer. The driver makes one token for each start of a context and sends it inside the tasks,
which only Spark carries. Each connection begins with a handshake of fixed size, in which both ends prove that they have the token. Nothing
else is read before, so an unauthenticated client fills no memory. All servers of a context may share a certificate: then everything is
encrypted, and clients refuse a server without its key. A message is a name and some bytes; a block is an id and chunks of bytes. Sizes are
bounded on both sides, before a body is read.

    credentials   RpcCredentials: token, certificate and key; the TLS contexts of these
    wire          the handshake, in which both ends prove the token, and the frames after it
    server        RpcServer: answers messages by handlers, and keeps blocks; counts refused connections
    client        RpcClient: OSError becomes an RpcError
"""

from kstream.rpc.client import RpcClient
from kstream.rpc.credentials import RpcCredentials
from kstream.rpc.server import Handler, RpcServer

__all__ = ["Handler", "RpcClient", "RpcCredentials", "RpcServer"]
