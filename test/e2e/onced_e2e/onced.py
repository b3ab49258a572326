"""The daemon under test, with a registry file and a ledger in a folder of its own. It keeps its port over restarts."""

import re
import signal
import subprocess
from urllib.parse import quote

from onced_e2e import binary, ledgers, registry
from onced_e2e.client import Client
from onced_e2e.ports import free_port
from onced_e2e.process import Process, environment
from onced_e2e.wait import wait_until

TERMINAL = {"completed_success", "completed_noop", "failed_permanent", "rejected", "compensated"}


class Onced:
    def __init__(self, folder, ledger=None, prefix=()):
        self.folder = folder
        self.file = folder / "onced.yaml"
        self.ledger = ledger or ledgers.new(folder)
        self.prefix = prefix
        self.process = Process("onced", folder / "onced.log")
        self.port = free_port()
        self.client = None

    # ---- life ----

    def configure(self, contents):
        self.file.write_text(registry.text({**contents, "ledger": ledgers.section(self.ledger)} if ledgers.POSTGRES else contents))

    def start(self):
        ready = self.process.start([binary.onced(), "serve", str(self.file), "--listen", f"127.0.0.1:{self.port}",
                                    "--ledger", str(self.ledger)], self.prefix)
        assert ready["ready"] is True
        self.port = ready["port"]
        self.client = Client(self.port)
        return self

    def kill(self):
        self.process.kill()

    def stop(self):
        """SIGTERM; a graceful stop ends with status 0."""
        status = self.process.terminate()
        assert status == 0, f"exit status {status} after SIGTERM\n{self.process.text()[-4000:]}"

    def restart(self, kill=True):
        self.kill() if kill else self.stop()
        return self.start()

    def reload(self, contents):
        before = self.process.text().count('"reload"')
        self.configure(contents)
        self.process.signal(signal.SIGHUP)
        wait_until(lambda: self.process.text().count('"reload"') > before, what="the reload")

    def cli(self, *argv, check=True):
        """Another subcommand of the same program."""
        done = subprocess.run([binary.onced(), *map(str, argv)], capture_output=True, text=True, timeout=30,
                              env=environment())
        assert not check or done.returncode == 0, done
        return done

    def select(self, statement, values=()):
        """Rows of the stopped daemon's ledger."""
        assert not self.process.alive()
        return ledgers.select(self.ledger, statement, values)

    def change(self, statement, values=()):
        """In the stopped daemon's ledger; how many rows."""
        assert not self.process.alive()
        return ledgers.change(self.ledger, statement, values)

    # ---- calls ----

    def call(self, tool, arguments, key=None, tenant=None, principal=None, headers=None, timeout=None, client=None, **members):
        """POST /v1/calls. key: the body's idempotency_key; other members as docs/http-api.md says."""
        body = {"tool": tool, "arguments": arguments, **members}
        if key is not None:
            body["idempotency_key"] = key
        merged = dict(headers or {})
        if tenant:
            merged["Onced-Tenant"] = tenant
        if principal:
            merged["Onced-Principal"] = principal
        return (client or self.client).post("/v1/calls", body, headers=merged, timeout=timeout)

    def submit(self, tool, arguments, **named):
        """The operation's id as soon as it is recorded."""
        answer = self.call(tool, arguments, headers={"Prefer": "respond-async"}, **named)
        assert answer.status == 202, answer
        return answer.id

    def operation(self, operation, **named):
        answer = self.client.get(f"/v1/operations/{operation}", **named)
        assert answer.status in (200, 202), answer
        return answer

    def settled(self, operation, seconds=15):
        """The operation when it is terminal or needs an operator, by long-poll."""
        answer = self.client.get(f"/v1/operations/{operation}?wait={seconds * 1000}", timeout=seconds + 5)
        assert answer.state in TERMINAL or answer.get("reason") == "needs_operator", answer
        return answer

    def by_key(self, tool, key):
        return self.client.get(f"/v1/tools/{tool}/operations/{quote(key, safe='')}")

    def operations(self, **filters):
        query = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in filters.items())
        answer = self.client.get(f"/v1/operations?{query}")
        assert answer.status == 200, answer
        return answer["operations"]

    def attempt_rows(self, operation):
        answer = self.client.get(f"/v1/operations/{operation}/attempts")
        assert answer.status == 200, answer
        return answer["attempts"]

    def events(self, operation):
        answer = self.client.get(f"/v1/operations/{operation}/events")
        assert answer.status == 200, answer
        return answer["events"]

    def metrics(self, **named):
        """Figure → number."""
        answer = self.client.request("GET", "/metrics", **named)
        assert answer.status == 200 and answer.headers["Content-Type"].startswith("text/plain"), answer
        found = {}
        for line in answer.raw.decode().splitlines():
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                assert re.fullmatch(r'[a-z_]+(\{[a-z]+="[^"]*"\})?', name) and name not in found, line
                found[name] = float(value)
        return found

    def waiters(self):
        """How many callers wait at this moment."""
        return self.metrics()["onced_waiters"]

    def states_seen(self, operation):
        """Every state of its life."""
        return {event["to"] for event in self.events(operation)}

    def incidents(self, operation=None):
        answer = self.client.get("/v1/incidents")
        assert answer.status == 200, answer
        return [each for each in answer["incidents"] if operation in (None, each["operation_id"])]
