"""The fault-injecting provider (docs/fake-provider.md) and what it says really happened."""

from onced_e2e import binary, webhooks
from onced_e2e.client import Client
from onced_e2e.ports import free_port
from onced_e2e.process import Process


class Provider:
    def __init__(self, folder, port=None):
        self.process = Process("fake provider", folder / "provider.log")
        self.port = port or free_port()
        self.client = None

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def start(self, *options):
        ready = self.process.start([binary.onced(), "fake-provider", "--port", str(self.port), *options])
        self.port = ready["port"]
        self.client = Client(self.port)
        return self

    def stop(self):
        if self.process.alive():
            self.process.terminate()

    # ---- what goes wrong ----

    def script(self, *entries):
        """Faults to be used up one per request: texts or {"fault": …, "on": …, …}."""
        answer = self.client.post("/_fake/script", list(entries))
        assert answer.status == 200, answer

    def config(self, **settings):
        answer = self.client.post("/_fake/config", settings)
        assert answer.status == 200, answer

    def webhooks(self, onced, source="pay", **settings):
        """From now on what it creates is told to onced's inbox (docs/fake-provider.md, Webhooks)."""
        secret, scheme = {"pay": (webhooks.STRIPE_SECRET, "stripe"), "hub": (webhooks.GITHUB_SECRET, "github"),
                          "standard": (webhooks.STANDARD_SECRET, "standard_webhooks")}[source]
        url = f"http://127.0.0.1:{onced.port}/v1/inbox/{source}"
        answer = self.client.post("/_fake/webhooks", {"url": url, "secret": secret, "scheme": scheme, **settings})
        assert answer.status == 200, answer

    def told(self):
        """The events that it sent or is to send, with what became of them."""
        return self.client.get("/_fake/webhooks").body["events"]

    def release(self):
        """Lets go of everything that is held, as if its time were over."""
        answer = self.client.post("/_fake/release", {})
        assert answer.status == 200, answer

    def reset(self):
        """Closes everything that is held and holds nothing more, so that processes can stop; the counts are gone after it."""
        self.client.post("/_fake/reset", {})

    # ---- the truth ----

    def truth(self):
        return self.client.get("/_fake/effects").body

    def effects(self, reference=None):
        """In total, or those of one operation (its id is the reference that the test tools send)."""
        truth = self.truth()
        return truth["by_reference"].get(reference, 0) if reference else truth["effects"]

    def effects_of(self, business_key):
        """Of a business key: "refunds/p1"."""
        return self.truth()["by_key"].get(business_key, 0)

    def requests(self, reference=None):
        entries = self.client.get("/_fake/requests").body["requests"]
        return [entry for entry in entries if reference in (None, entry["reference"])]

    def writes(self, reference=None):
        return [entry for entry in self.requests(reference) if entry["method"] != "GET"]

    def lookups(self):
        return [entry for entry in self.requests() if entry["method"] == "GET"]

    def keys(self, reference=None):
        """Distinct idempotency keys that writes carried."""
        return {entry["key"] for entry in self.writes(reference)}

    # ---- acting on it directly, as an unprotected client would ----

    def write(self, collection, body, headers=None, timeout=5):
        return self.client.post(f"/v1/{collection}", body, headers=headers, timeout=timeout)

    def objects(self, collection, query=""):
        return self.client.get(f"/v1/{collection}?{query}").body["data"]
