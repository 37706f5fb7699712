"""An OIDC issuer on loopback: fresh keys, a key set over HTTP, and tokens good and bad."""

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

ISSUER = "https://issuer.test"
AUDIENCE = "lucius"
ALGORITHM_OF = {"rsa": "RS256", "ec": "ES256", "ed": "EdDSA"}


def fresh_keys() -> dict[str, Any]:
    return {
        "rsa": rsa.generate_private_key(public_exponent=65537, key_size=2048),
        "ec": ec.generate_private_key(ec.SECP256R1()),
        "ed": ed25519.Ed25519PrivateKey.generate(),
    }


class Issuer:
    """`held` keeps answers back while it is not set; `status` is what the key set is answered with."""

    def __init__(self, private: dict[str, Any]) -> None:
        self.private = dict(private)
        self.published = {"rsa", "ec", "ed"}
        self.fetches = 0
        self.status = 200
        self.body: bytes | None = None
        self.asked, self.held = threading.Event(), threading.Event()
        self.held.set()
        self.url = ""

    def key_set(self) -> bytes:
        return json.dumps({"keys": [self.jwk(kid) for kid in sorted(self.published)]}).encode()

    def jwk(self, kid: str) -> dict[str, Any]:
        public = self.private[kid].public_key()
        kind: Any = {"rsa": RSAAlgorithm, "ec": ECAlgorithm, "ed": OKPAlgorithm}[
            kid.partition("-")[0]
        ]
        return {**kind.to_jwk(public, as_dict=True), "kid": kid, "use": "sig"}

    def claims(self, **changes: Any) -> dict[str, Any]:
        now = int(time.time())
        claims = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": "someone",
            "iat": now,
            "exp": now + 600,
            "roles": ["submit", "read", "operate", "service", "admin"],
            "tenants": "*",
        }
        return {name: value for name, value in {**claims, **changes}.items() if value is not None}

    def token(self, kid: str = "rsa", **changes: Any) -> str:
        return self.signed(self.private[kid], ALGORITHM_OF.get(kid, "RS256"), kid, **changes)

    def signed(self, key: Any, algorithm: str, kid: str | None, **changes: Any) -> str:
        headers = {"kid": kid} if kid is not None else {}
        return jwt.encode(self.claims(**changes), key, algorithm, headers)

    def unsigned(self, algorithm: str = "none", signature: str = "") -> str:
        head = {"alg": algorithm, "typ": "JWT", "kid": "rsa"}
        parts = (json.dumps(part).encode() for part in (head, self.claims()))
        return ".".join(
            [*(base64.urlsafe_b64encode(p).rstrip(b"=").decode() for p in parts), signature]
        )

    def wrongly_signed(self) -> str:
        head, claims, _ = self.token().split(".")
        return f"{head}.{claims}.{self.token(sub='another').split('.')[2]}"

    @contextmanager
    def running(self) -> Iterator["Issuer"]:
        server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        self.url = f"http://127.0.0.1:{server.server_address[1]}/keys"
        try:
            yield self
        finally:
            self.held.set()
            server.shutdown()
            thread.join()
            server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.fetches += 1
                issuer.asked.set()
                issuer.held.wait(10)
                body = issuer.body if issuer.body is not None else issuer.key_set()
                self.send_response(issuer.status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None: ...

        return Handler
