"""Messages and blocks between the driver and the processes on executors, over TCP.

One idea: a client without the token gets no answer. The driver makes one token for each start of a context and sends it inside the tasks,
which only Spark carries. Each connection begins with a handshake of fixed size, in which both ends prove that they have the token. Nothing
else is read before, so an unauthenticated client fills no memory. All servers of a context may share a certificate: then everything is
encrypted, and clients refuse a server without the certificate's key. A message is a name and some bytes; a block is an id and chunks of
bytes. Both sides check sizes before they read a body.

    settings      the setting of messages and blocks
    credentials   RpcCredentials: token, certificate and key; the TLS contexts made from them
    wire          the handshake, in which both ends prove the token, and the frames after it
    bodies        the bodies of messages, as JSON
    server        RpcServer: answers messages by handlers, keeps blocks, and counts refused connections
    client        RpcClient: sends messages and blocks, and turns an OSError into an RpcError
"""

from kstream.rpc.bodies import of_body, to_body
from kstream.rpc.client import RpcClient
from kstream.rpc.credentials import RpcCredentials
from kstream.rpc.server import Handler, RpcServer

__all__ = ["Handler", "RpcClient", "RpcCredentials", "RpcServer", "of_body", "to_body"]
