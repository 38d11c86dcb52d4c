"""An OAuth 2 server of one's own on loopback: a token endpoint for client credentials, and the keys to check its tokens with (JWKS)."""

from __future__ import annotations

import base64
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from urllib.parse import parse_qs

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

AUDIENCE = "kafka"
_KEY_ID = "test"


class TokenServer:
    """Serves while its with block is open. `clients` are id → secret; a token names its client as subject. `seconds` is a token's life."""

    def __init__(self) -> None:
        self.clients: dict[str, str] = {}
        self.seconds = 3600
        self.asked = 0
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def token_url(self) -> str:
        return f"{self._url}/token"

    @property
    def jwks_url(self) -> str:
        return f"{self._url}/keys"

    @property
    def _url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> TokenServer:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def token(self, subject: str, seconds: int | None = None) -> str:
        """A signed token; with negative seconds one that has expired."""
        now = int(time.time())
        life = self.seconds if seconds is None else seconds
        claims = {"sub": subject, "aud": AUDIENCE, "iat": now + min(life, 0) - 60, "exp": now + life, "scope": "read"}
        signed = f"{_json({'alg': 'RS256', 'kid': _KEY_ID, 'typ': 'JWT'})}.{_json(claims)}"
        return f"{signed}.{_base64(self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"

    def keys(self) -> dict[str, object]:
        """The JWKS document."""
        numbers = self._key.public_key().public_numbers()
        n, e = (_base64(v.to_bytes((v.bit_length() + 7) // 8, "big")) for v in (numbers.n, numbers.e))
        return {"keys": [{"kty": "RSA", "use": "sig", "alg": "RS256", "kid": _KEY_ID, "n": n, "e": e}]}


def _handler_of(tokens: TokenServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(200, tokens.keys())

        def do_POST(self) -> None:
            tokens.asked += 1
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            client, secret = base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode().split(":", 1)
            if form.get("grant_type") == ["client_credentials"] and tokens.clients.get(client) == secret:
                self._answer(200, {"access_token": tokens.token(client), "token_type": "Bearer", "expires_in": tokens.seconds})
            else:
                self._answer(401, {"error": "invalid_client", "error_description": "no such client or another secret"})

        def _answer(self, status: int, content: object) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _json(value: object) -> str:
    return _base64(json.dumps(value).encode())


def from_file(config: str) -> tuple[str, float]:
    """An `oauth_cb` to be named by import path: the token lies in the file that sasl.oauthbearer.config names."""
    return Path(config).read_text(), time.time() + 300
