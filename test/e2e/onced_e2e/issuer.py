"""An identity provider: key pairs, its JWKS over HTTP on a port of its own, and tokens signed by PyJWT."""

import http.server
import json
import threading
import time

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

AUDIENCE = "https://onced.example"
MAKERS = {"RS256": lambda: rsa.generate_private_key(public_exponent=65537, key_size=2048),
          "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
          "EdDSA": ed25519.Ed25519PrivateKey.generate}
WRITERS = {"RS256": RSAAlgorithm, "PS256": RSAAlgorithm, "ES256": ECAlgorithm, "EdDSA": OKPAlgorithm}


class Key:
    def __init__(self, kid, algorithm):
        self.kid = kid
        self.algorithm = algorithm
        self.private = MAKERS[algorithm]()

    def public(self):
        members = json.loads(WRITERS[self.algorithm].to_jwk(self.private.public_key()))
        return {**members, "kid": self.kid, "use": "sig", "key_ops": ["verify"]}


class Issuer:
    """start() and stop() like a process; the port stays the same."""

    def __init__(self, name="https://idp.example"):
        self.name = name
        self.keys = {}
        self.published = []
        self.fetches = 0
        self.status = 200
        self.port = 0
        self.server = None
        for algorithm in MAKERS:
            self.rotate(Key(f"first-{algorithm}", algorithm))

    # ---- keys ----

    def rotate(self, key, publish=True):
        self.keys[key.kid] = key
        if publish:
            self.published.append(key.kid)
        return key

    def withdraw(self, kid):
        self.published.remove(kid)

    def jwks(self):
        return {"keys": [self.keys[kid].public() for kid in self.published]}

    # ---- tokens ----

    def claims(self, **changes):
        now = int(time.time())
        claims = {"iss": self.name, "aud": AUDIENCE, "sub": "agent", "tenant": "acme", "iat": now, "exp": now + 600,
                  "roles": ["app-agent"], **changes}
        return {name: value for name, value in claims.items() if value is not None}

    def token(self, kid="first-ES256", headers=None, **changes):
        key = self.keys[kid]
        return jwt.encode(self.claims(**changes), key.private, algorithm=key.algorithm, headers={"kid": kid, **(headers or {})})

    # ---- serving ----

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/jwks.json"

    def section(self, **more):
        """Of server.jwt."""
        return {"issuer": self.name, "audience": [AUDIENCE], "jwks": self.url, "tenant": "/tenant", "refresh": "200ms", "leeway": "0",
                "roles": {"from": "/roles", "map": {"app-agent": "agent", "app-approver": "approver", "app-admin": "admin"}},
                **more}

    def start(self):
        issuer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):  # noqa: N802 - http.server's name
                issuer.fetches += 1
                body = json.dumps(issuer.jwks()).encode()
                self.send_response(issuer.status)
                if issuer.status == 302:
                    self.send_header("Location", "/elsewhere.json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def stop(self):
        if self.server:
            self.server.shutdown()
            self.server.server_close()
            self.server = None
