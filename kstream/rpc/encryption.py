"""TLS by the certificate of RpcCredentials: whoever has its key is trusted, on whatever machine."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Generator
from contextlib import contextmanager

from kstream.rpc.credentials import RpcCredentials


def server_context(credentials: RpcCredentials) -> ssl.SSLContext | None:
    """None where calls are not encrypted."""
    if not credentials.encrypted:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.num_tickets = 0  # an idle connection has nothing to read then, unless its server has closed it
    with _as_file(credentials.certificate + credentials.key) as path:
        context.load_cert_chain(path)
    return context


def client_context(credentials: RpcCredentials) -> ssl.SSLContext | None:
    """As `server_context`. It trusts this one certificate."""
    if not credentials.encrypted:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=credentials.certificate)
    return context


@contextmanager
def _as_file(text: str) -> Generator[str]:
    """`ssl` reads a key from a file only. The file is in memory where the system can do that, else one that nobody else may read."""
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("kstream-rpc"), "w") as file:
            file.write(text)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(text)
            file.flush()
            yield file.name
