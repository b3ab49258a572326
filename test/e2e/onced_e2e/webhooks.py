"""A provider's webhooks: signed here with the standard library, or live by the providers' own libraries (test/webhooks)."""

import base64
import hashlib
import hmac
import http.client
import json
import shutil
import subprocess
import time

from onced_e2e import binary
from onced_e2e.client import LOST, Answer

STRIPE_SECRET = "whsec_of_the_end_to_end_tests"
STANDARD_SECRET = "whsec_" + base64.b64encode(b"thirty-two bytes of a test secret").decode()
GITHUB_SECRET = "It's a Secret to Everybody"
ENVIRONMENT = {"PAY_SECRET": STRIPE_SECRET, "OLD_SECRET": "whsec_before", "STANDARD_SECRET": STANDARD_SECRET, "HUB_SECRET": GITHUB_SECRET}
FOLDER = binary.ROOT / "test/webhooks"

OUTCOMES = [  # "thing": events of tests; "refunds": those of the fake provider
    {"when": '.type == "thing.succeeded" or .type == "refunds.succeeded"', "outcome": "success", "result": "/data/object"},
    {"when": '.type == "thing.failed" or .type == "refunds.failed"', "outcome": "no_effect"},
    {"when": '.type == "refunds.pending"', "outcome": "pending"},
    {"when": '.type == "thing.broken"', "outcome": "failed"},
    {"when": '.type == "thing.pending"', "outcome": "pending"},
]


def sources(provider="plain"):
    common = {"provider": provider, "outcomes": OUTCOMES,
              "match": {"reference": "/data/object/reference", "external_id": "/data/object/id"}}
    return {
        "pay": {"signature": {"scheme": "stripe", "secrets": ["${env:OLD_SECRET}", "${env:PAY_SECRET}"]}, **common},
        "standard": {"signature": {"scheme": "standard_webhooks", "secrets": ["${env:STANDARD_SECRET}"]}, **common},
        "hub": {"signature": {"scheme": "github", "secrets": ["${env:HUB_SECRET}"]}, **common},
    }


def event(number, kind, reference=None, external_id=None, created=None):
    data = {"object": {key: value for key, value in (("reference", reference), ("id", external_id)) if value}}
    return json.dumps({"id": f"evt_{number}", "type": kind, "created": int(created or time.time()), "data": data})


def stripe(body, secret=STRIPE_SECRET, at=None):
    at = int(at or time.time())
    made = hmac.new(secret.encode(), f"{at}.{body}".encode(), hashlib.sha256).hexdigest()
    return {"Stripe-Signature": f"t={at},v1={made}"}


def standard(body, message, secret=STANDARD_SECRET, at=None):
    at = int(at or time.time())
    key = base64.b64decode(secret.removeprefix("whsec_"))
    made = base64.b64encode(hmac.new(key, f"{message}.{at}.{body}".encode(), hashlib.sha256).digest()).decode()
    return {"webhook-id": message, "webhook-timestamp": str(at), "webhook-signature": f"v1,{made}"}


def github(body, secret=GITHUB_SECRET, delivery="d-1"):
    made = hmac.new(secret.encode(), body.encode(), hashlib.sha256).hexdigest()
    return {"X-Hub-Signature-256": f"sha256={made}", "X-GitHub-Event": "thing", "X-GitHub-Delivery": delivery}


def post(port, source, body, headers, timeout=10):
    """One delivery on a connection of its own, bytes as they are."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("POST", f"/v1/inbox/{source}", body.encode(), {"Content-Type": "application/json", **headers})
        answer = connection.getresponse()
        return Answer(answer.status, answer.headers, answer.read())
    finally:
        connection.close()


def tell(onced, body, source="pay", headers=None):
    return post(onced.port, source, body, headers or stripe(body))


def tell_until_taken(port, body, seconds=20):
    """As providers do: the same event again and again, signed anew, until it is answered 2xx. Returns the answers."""
    end, answers = time.monotonic() + seconds, []
    while time.monotonic() < end:
        try:
            answers.append(post(port, "pay", body, stripe(body), timeout=3))
            if answers[-1].status == 200:
                return answers
        except LOST:
            pass
        time.sleep(0.02)
    raise AssertionError(f"never taken: {answers[-1:]}")


class Libraries:
    """npm stripe and standardwebhooks in one node process."""

    def __init__(self):
        self.node = subprocess.Popen(["node", FOLDER / "sign.mjs"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    @staticmethod
    def there():
        return bool(shutil.which("node")) and (FOLDER / "node_modules/stripe").exists()

    def ask(self, **wanted):
        self.node.stdin.write(json.dumps(wanted) + "\n")
        self.node.stdin.flush()
        return json.loads(self.node.stdout.readline())

    def close(self):
        self.node.stdin.close()
        self.node.wait(10)
