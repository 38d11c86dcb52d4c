"""Messages and blocks between the driver and what runs on executors, over TCP.

One idea: whoever started the other process gave it a token, and nobody without it is answered. The driver makes one token for each start
of a context and hands it over inside the tasks, which nobody but Spark carries. Each connection begins with a greeting of fixed size, in
which both ends prove that they have the token; before that nothing else is read, so a stranger fills no memory. With the token may go a
certificate that all servers of the context share: then everything is encrypted, and a server without its key is none. A message is a name
and some bytes; a block is a name and chunks of bytes. Sizes are bounded on both sides, before a body is read.

Arrow Flight served here first. Its server takes the whole request of most calls before it asks anybody, and its limit cannot be set.

    credentials   RpcCredentials: token, certificate and key, and their making
    encryption    TLS contexts for these
    wire          frames on a connection
    token         the greeting, and the count of those who were refused
    server        RpcServer: answers messages and keeps blocks by functions it is given
    client        RpcClient: the other end; OSError becomes an RpcError
"""

from kstream.rpc.client import RpcClient
from kstream.rpc.credentials import RpcCredentials
from kstream.rpc.server import Handler, RpcServer

__all__ = ["Handler", "RpcClient", "RpcCredentials", "RpcServer"]
