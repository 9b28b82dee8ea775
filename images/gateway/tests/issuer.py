"""An actual issuer of callers' tokens."""

import threading
import time
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

from images.gateway.tests.json_server import JsonServer

AUDIENCE = "voice"


class Issuer(JsonServer):
    """An OpenID Connect issuer: discovery, keys, and tokens."""

    def __init__(self) -> None:
        self.keys = {"k1": rsa.generate_private_key(65537, 2048)}
        self.asked: list[str] = []
        self.is_well = True
        self.answers = threading.Event()
        self.answers.set()
        super().__init__()

    def respond(self, path: str, body: str) -> tuple[int, object]:  # noqa: ARG002  a GET has none
        self.asked.append(path)
        self.answers.wait()
        values = {"/.well-known/openid-configuration": {"jwks_uri": f"{self.url}/keys"}, "/keys": self.jwks()}
        return 200 if self.is_well else 500, values[path]

    def jwks(self) -> dict[str, Any]:
        make = jwt.algorithms.RSAAlgorithm.to_jwk
        return {
            "keys": [
                {**make(key.public_key(), as_dict=True), "kid": name, "alg": "RS256", "use": "sig"}
                for name, key in self.keys.items()
            ]
        }

    def token(self, key: str = "k1", **changes: object) -> str:
        claims = {"sub": "anna", "iss": self.url, "aud": AUDIENCE, "exp": time.time() + 60} | changes
        claims = {name: value for name, value in claims.items() if value is not None}
        return jwt.encode(claims, self.keys[key], algorithm="RS256", headers={"kid": key})
