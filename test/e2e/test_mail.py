"""The mail adapter before real mail servers (Exim and Dovecot): the connection is cut at each step of SMTP, in both directions;
effects are counted in the mailbox on disk. Judged: no message ever lies there twice, what onced calls sent lies there once, what
it calls not sent does not lie there, and nothing else is done after an unclear end than look-ups."""

import contextlib
import pathlib
import random
import shutil
import tempfile
import threading
import time
from types import SimpleNamespace

import pytest

from onced_e2e import registry
from onced_e2e.crash import rounds
from onced_e2e.figures import figure
from onced_e2e.mail import PASSWORD, MailServers, there
from onced_e2e.onced import TERMINAL, Onced
from onced_e2e.wait import wait_until

TEXT = {"type": "string"}
CALLERS = 64
pytestmark = pytest.mark.skipif(not there(), reason="Exim or Dovecot is missing (tools/setup.sh test)")


@contextlib.contextmanager
def running(**how):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="onced-mail-"))  # pytest's own is private, and the servers are somebody else
    folder.chmod(0o755)
    servers = MailServers(folder, **how)
    try:
        yield servers.start()
    finally:
        servers.stop()
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def servers():
    with running() as servers:
        yield servers


class World:
    def __init__(self, servers, folder, processes):
        self.servers = servers
        self.onced = Onced(folder)
        processes.append(self.onced.process)

    def start(self, providers, tools, server=None):
        self.onced.configure({**registry.file("http://127.0.0.1:1", tools, server=server), "providers": providers})
        return self.onced.start()


@pytest.fixture
def world(servers, tmp_path, processes):
    world = World(servers, tmp_path, processes)
    yield world
    if world.onced.process.alive():
        world.onced.stop()
    assert not world.onced.process.findings()


def provider(servers, wire, look=True, **smtp):
    section = {"smtp": {"url": wire.url, "tls": "none", "from": "Shop <shop@example.com>", "helo": "agent.example.com", **smtp},
               "timeout": "3s", "connections": CALLERS, "breaker": {"failures": 0}}
    if look:
        section["imap"] = {"url": f"imap://127.0.0.1:{servers.imap_port}", "tls": "none", "username": "archive", "password": PASSWORD}
    return section


def tool(name, **more):
    mail = {"to": "{to}", "cc": "{cc?}", "bcc": "archive@example.com", "subject": "{subject}", "text": "{body}", **more.pop("mail", {})}
    return {"class": "external_weak", "provider": name, "mail": mail, "while_in_doubt": "allow", "settle": "200ms", "absent_times": 2,
            "lookup_interval": "50ms", "lookup_interval_max": "200ms", "give_up": "30s", "watch": [], "wait": "15s",
            "retry": {"attempts": 5, "total": "1h", "backoff": "20ms", "backoff_max": "100ms"},
            "input_schema": {"type": "object", "properties": {"to": {}, "cc": {}, "subject": TEXT, "body": TEXT}}, **more}


def arguments(n, **more):
    return {"to": f"user{n}@example.com", "subject": f"order {n}", "body": f"Dear {n},\n\nyour order is on its way.\n", **more}


def message_id(operation):
    return f"<{operation}@example.com>"


def copies(servers, operation):
    servers.settle()
    return servers.counts().get(message_id(operation), 0)


# ---- the connection is cut at each step ----

BEFORE_END = [(step, how) for step in ("greeting", "EHLO", "AUTH", "MAIL", "RCPT", "DATA", "message") for how in ("before", "after", "told")
              if step != "message" and (step, how) != ("DATA", "told")] + [("MAIL", "half"), ("DATA", "half"), ("RCPT", "silent")]
WITHIN = [("DATA", "told"), ("message", "before")]  # of a message so small that its end may be on the way already
AT_END = [("end", "before"), ("end", "after"), ("end", "half"), ("end", "silent")]
AFTER_END = [("end", "told"), ("QUIT", "before"), ("QUIT", "after")]


def start_cut(world, cuts, look=True):
    login = {"username": "shop", "password": PASSWORD}
    wires = [world.servers.wire(cut) for cut in cuts]
    onced = world.start({f"p{n}": {**provider(world.servers, wire, look, **login), "timeout": "4s" if cut[1] == "silent" else "10s"}
                         for n, (cut, wire) in enumerate(zip(cuts, wires))},
                        {f"send{n}": tool(f"p{n}") for n in range(len(cuts))})
    return onced, wires


def call_all(onced, count):
    """One call of each tool, all at once."""
    answers = [None] * count

    def call(n):
        answers[n] = onced.call(f"send{n}", arguments(n), key=f"k{n}")

    threads = [threading.Thread(target=call, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [onced.settled(answer.id, 30) for answer in answers]


def outcomes(onced, operation, kind="call"):
    return [row["outcome"] for row in onced.attempt_rows(operation) if row["kind"] == kind]


def test_cut_at_each_step(world):
    cuts = BEFORE_END + WITHIN + AT_END + AFTER_END
    onced, wires = start_cut(world, cuts)
    ends = call_all(onced, len(cuts))
    for cut, wire, end in zip(cuts, wires, ends):
        calls, states = outcomes(onced, end.id), onced.states_seen(end.id)
        said = f"{cut}: {end}, attempts {calls}, {states}"
        effects = copies(world.servers, end.id)
        assert wire.connections == len(calls), said
        if cut in BEFORE_END:  # proven: nothing happened; the second attempt sends
            assert end.state == "completed_success" and effects == 1 and "unknown_outcome" not in states, said
            assert len(calls) > 1 and calls[-1] == "success" and set(calls[:-1]) <= {"not_sent", "not_processed"}, said
        elif cut in WITHIN:
            assert (end.state, effects) in (("completed_success", 1), ("failed_permanent", 0)), said
        elif cut == ("end", "before"):  # may have happened; it did not, and nobody but a person may send it again
            assert end.state == "failed_permanent" and end["reason"] == "absent" and effects == 0 and len(calls) == 1, said
        elif cut in AT_END:  # may have happened; it did, and the look-up finds it
            assert end.state == "completed_success" and effects == 1 and len(calls) == 1 and "unknown_outcome" in states, said
            assert outcomes(onced, end.id, "lookup")[-1] == "found", said
        else:
            assert end.state == "completed_success" and effects == 1 and calls == ["success"], said
    figure("mail cuts", f"{len(cuts)} cuts at each step of SMTP: no message twice, none lost")


def test_unclear_ends_without_look_up_wait_for_a_person(world):
    onced, wires = start_cut(world, AT_END, look=False)
    for cut, wire, end in zip(AT_END, wires, call_all(onced, len(AT_END))):
        assert end.state == "unknown_outcome" and end["reason"] == "needs_operator", (cut, end)
        assert wire.counts["MAIL"] == 1 and copies(world.servers, end.id) == (0 if cut[1] == "before" else 1), cut
        again = onced.call(f"send{AT_END.index(cut)}", arguments(AT_END.index(cut)), key=f"k{AT_END.index(cut)}", wait_ms=100)
        assert again.id == end.id and again.state == "unknown_outcome" and wire.counts["MAIL"] == 1


def test_cut_within_a_large_message(world):
    """Its end has not left yet: proven not sent, sent again."""
    wire = world.servers.wire(("message", "before"))
    onced = world.start({"mail": {**provider(world.servers, wire), "timeout": "10s"}}, {"send": tool("mail")},
                        {"body_bytes_max": "16MB"})
    end = onced.call("send", arguments(1, body="0123456789abcdef" * 62_500 * 8), key="1")
    assert end.state == "completed_success" and outcomes(onced, end.id) == ["not_processed", "success"], end
    assert copies(world.servers, end.id) == 1


# ---- what servers refuse ----

REFUSALS = [
    ("greeting", b"554 5.7.1 not you\r\n", "failed_permanent"), ("greeting", b"421 too busy\r\n", "completed_success"),
    ("EHLO", b"421 4.3.2 going down\r\n", "completed_success"), ("MAIL", b"550 5.7.1 bad sender\r\n", "failed_permanent"),
    ("MAIL", b"450-4.7.1 wait\r\n450 4.7.1 and wait\r\n", "completed_success"), ("RCPT", b"550 5.1.1 no such user\r\n", "failed_permanent"),
    ("RCPT", b"451 4.7.1 greylisted\r\n", "completed_success"), ("DATA", b"554 5.5.1 no\r\n", "failed_permanent"),
    ("DATA", b"451 4.3.0 later\r\n", "completed_success"), ("message", b"552 5.3.4 too large\r\n", "failed_permanent"),
    ("end", b"554 5.6.0 content refused\r\n", "failed_permanent"), ("end", b"452 4.3.1 disk full\r\n", "completed_success"),
]


def test_refusals_prove_no_effect(world):
    wires = [world.servers.wire((step, reply)) for step, reply, _ in REFUSALS]
    onced = world.start({f"p{n}": provider(world.servers, wire) for n, wire in enumerate(wires)},
                        {f"send{n}": tool(f"p{n}") for n in range(len(wires))})
    for (step, reply, state), end in zip(REFUSALS, call_all(onced, len(wires))):
        said = f"{step} {reply}: {end}"
        assert end.state == state and copies(world.servers, end.id) == (1 if state == "completed_success" else 0), said
        assert "unknown_outcome" not in onced.states_seen(end.id), said
        if state == "failed_permanent":
            assert end["error"]["code"] == reply[:3].decode() and reply[4:20].decode().strip() in end["error"]["message"], said


def test_exim_refuses_recipients_and_content(world):
    onced = world.start({"mail": provider(world.servers, world.servers.wire())}, {"send": tool("mail")})
    several = onced.call("send", arguments(1, to=["ada@example.com", "nobody@example.com", "bob@example.com"]), key="several")
    assert several.state == "failed_permanent" and "nobody@example.com: 550" in several["error"]["message"], several
    assert "nothing" not in several["error"]["message"] and copies(world.servers, several.id) == 0
    content = onced.call("send", arguments(2, subject="refuse this"), key="content")
    assert content.state == "failed_permanent" and content["error"]["code"] == "550", content
    grey = onced.call("send", arguments(3, subject="greylist this"), key="grey")
    assert grey.state == "failed_permanent" and outcomes(onced, grey.id) == ["not_processed"] * 5, grey
    large = onced.call("send", arguments(4, body="x" * 900_000), key="large")
    assert large.state == "completed_success", large
    assert world.servers.counts("people").get(message_id(several.id)) is None


def test_login(world):
    good, bad = world.servers.wire(), world.servers.wire()
    onced = world.start({"good": provider(world.servers, good, username="shop", password=PASSWORD),
                         "bad": provider(world.servers, bad, username="shop", password="wrong"),
                         "insists": {**provider(world.servers, world.servers.wire()), "smtp": {
                             "url": world.servers.wire().url, "from": "shop@example.com"}}},
                        {"good": tool("good"), "bad": tool("bad"), "insists": tool("insists", retry={"attempts": 1, "total": "1s"})})
    assert onced.call("good", arguments(1), key="1").state == "completed_success"
    refused = onced.call("bad", arguments(1), key="1")
    assert refused.state == "failed_permanent" and "login" in refused["error"]["message"] and "wrong" not in str(refused.body), refused
    assert bad.counts["MAIL"] == 0
    plain = onced.submit("insists", arguments(1), key="1")  # the server offers no TLS
    wait_until(lambda: "not_sent" in outcomes(onced, plain), what="the attempt's end")
    assert set(outcomes(onced, plain)) <= {"not_sent", "open"} and world.servers.wires[-1].counts["MAIL"] == 0


def test_tls(world):
    """STARTTLS, a login and a message within it; nothing is said to a server whose certificate is not trusted."""
    with running(tls=True) as servers:
        if not servers.daemon:
            pytest.skip("Exim listens for root and its own user only")
        wire = SimpleNamespace(url=f"smtp://localhost:{servers.smtp_port}")
        section = provider(servers, wire, tls="required", username="shop", password=PASSWORD)
        onced = world.start({"mail": {**section, "tls": {"ca": str(servers.folder / "cert.pem")}}, "strangers": section},
                            {"send": tool("mail"), "to_strangers": tool("strangers", retry={"attempts": 1, "total": "1s"})})
        sent = onced.call("send", arguments(1, body="line\n" * 100_000), key="1")
        assert sent.state == "completed_success" and copies(servers, sent.id) == 1, sent
        refused = onced.settled(onced.call("to_strangers", arguments(1), key="1").id)
        assert refused.state == "failed_permanent" and "certificate" in refused["error"]["message"], refused
        assert set(outcomes(onced, refused.id)) == {"not_sent"} and copies(servers, refused.id) == 0


# ---- many at once, crashes ----

def test_64_callers_one_key(world):
    wire = world.servers.wire()
    onced = world.start({"mail": provider(world.servers, wire)}, {"send": tool("mail")})
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(onced.call("send", arguments(1), key="one"))) for _ in range(CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {answer.id for answer in answers} == {answers[0].id} and {answer.state for answer in answers} == {"completed_success"}
    assert copies(world.servers, answers[0].id) == 1 and wire.counts["MAIL"] == 1


def ask_until_told(onced, n, ends):
    """As a caller that retries with its key until it knows."""
    until = time.monotonic() + 100
    while time.monotonic() < until:
        try:
            answer = onced.call("send", arguments(n), key=f"crash{n}", timeout=20)
            if answer.state in TERMINAL:
                ends[n] = answer
                return
        except OSError:
            pass
        except Exception as problem:  # http.client's many
            if type(problem).__module__ != "http.client":
                raise
        time.sleep(0.05)


@pytest.mark.on_both_ledgers
def test_64_callers_and_kill_9(world):
    chance = random.Random(7)
    wire = world.servers.wire()
    onced = world.start({"mail": provider(world.servers, wire)}, {"send": tool("mail")})
    ends, total, kills = {}, CALLERS * max(1, rounds(10) // 10), max(1, rounds(10) // 10)
    todo = list(range(total))

    def caller():
        while True:
            try:
                n = todo.pop()
            except IndexError:
                return
            ask_until_told(onced, n, ends)

    threads = [threading.Thread(target=caller) for _ in range(CALLERS)]
    for thread in threads:
        thread.start()
    for kill in range(1, kills + 1):
        wait_until(lambda: wire.counts["end"] >= kill * total // (kills + 1) or len(ends) == total, seconds=60, every=0.002)
        time.sleep(chance.uniform(0, 0.03))
        onced.restart()
    for thread in threads:
        thread.join()
    assert sorted(ends) == list(range(total))
    world.servers.settle()
    counts, absent = world.servers.counts(), 0
    for n, end in ends.items():
        effects = counts.get(message_id(end.id), 0)
        assert effects == (1 if end.state == "completed_success" else 0), (n, end, effects)
        absent += end.state == "failed_permanent"
        assert end.state == "completed_success" or end["reason"] == "absent", end
    figure("mail kills", f"{total} messages, {CALLERS} callers, {kills} kills: {total - absent} sent once, {absent} proven not sent, 0 twice")


def test_killed_around_the_end_of_the_message(world):
    """By kill -9 while the server's answer to the final dot is on its way: sent, and found."""
    wire = world.servers.wire(("end", "silent"), ("message", "before"))
    onced = world.start({"mail": {**provider(world.servers, wire), "timeout": "10s"}}, {"send": tool("mail")})
    operation = onced.submit("send", arguments(1), key="1")
    wait_until(lambda: copies(world.servers, operation) == 1, what="the delivery")  # Exim drops what a client left at the dot
    onced.restart()
    end = onced.settled(operation)
    assert end.state == "completed_success" and copies(world.servers, operation) == 1 and wire.counts["MAIL"] == 1, end


def test_S19_a_repeat_while_the_outcome_is_unknown_is_no_second_mail(world):
    """The server takes the message and its reply is lost; the agent, which has no key, sends the same again, twice."""
    wire = world.servers.wire(("end", "after"))
    onced = world.start({"mail": provider(world.servers, wire)}, {"send": tool("mail", absent_times=9)})
    calls = [onced.call("send", arguments(19), wait_ms=200) for _ in range(3)]
    assert {call.id for call in calls} == {calls[0].id} and [call["replayed"] for call in calls] == [False, True, True], calls
    end = onced.settled(calls[0].id)
    assert end.state == "completed_success" and "unknown_outcome" in onced.states_seen(end.id), end
    assert message_id(end.id) == end["external_id"], end  # chosen before sending, and what the look-up went by
    assert wire.counts["MAIL"] == 1 and copies(world.servers, end.id) == 1


# ---- one slow server holds up nobody ----

def test_a_slow_answer_holds_up_nobody(world):
    """libcurl's own SMTP would wait for it inside one call."""
    slow, quick = world.servers.wire(("end", "silent")), world.servers.wire()
    onced = world.start({"slow": {**provider(world.servers, slow), "timeout": "60s"}, "quick": provider(world.servers, quick)},
                        {"slow": tool("slow"), "quick": tool("quick")})
    operation = onced.submit("slow", arguments(1), key="1")
    slow.wait_for("end")
    assert onced.call("quick", arguments(2), key="2").state == "completed_success"
    assert onced.operation(operation).state == "dispatched"
    wait_until(lambda: copies(world.servers, operation) == 1, what="the delivery")  # Exim drops what a client left at the dot
    slow.close()
    assert onced.settled(operation).state == "completed_success"


# ---- what is in the message ----

TEXTS = ["plain", "Größe: 10 € für Ærøskøbing", "日本語の件名はとても長いので折り返されます、何度でも折り返されます", "=?utf-8?q?looks_encoded?=",
         "a " * 300, "x" * 400, " blanks around ", "tab\there", "emoji 👩‍👩‍👧‍👦 " * 12]
BODIES = ["one line", "dots\n.\n..\n.hidden\n", "From here\nand >From there\n", "cr\rlf\ncrlf\r\nend", "trailing blanks  \n\t\nü",
          "long " * 500, "=3D and = at the end =\n", "日本語\n" * 50, "\n\n\n", "x" * 1000 + "\n" + "y" * 5000]


def test_messages_arrive_as_they_were_meant(world):
    onced = world.start({"mail": provider(world.servers, world.servers.wire())},
                        {"send": tool("mail", mail={"html": "{html?}", "headers": {"X-Order": "{subject}", "In-Reply-To": "{parent?}"},
                                                    "reply_to": "Größe & Co <sales@example.com>"},
                                      input_schema={"type": "object"})})
    sent = {}
    for n in range(max(len(TEXTS), len(BODIES))):
        values = {"to": f"\"Dr. {TEXTS[n % len(TEXTS)].strip()[:60]}\" <user{n}@example.com>", "subject": TEXTS[n % len(TEXTS)],
                  "body": BODIES[n % len(BODIES)]}
        if n % 2:
            values["html"] = f"<p>{BODIES[n % len(BODIES)]}</p>"
        answer = onced.call("send", values, key=f"text{n}")
        assert answer.state == "completed_success", answer
        sent[message_id(answer.id)] = values
    world.servers.settle()
    got = {message["Message-ID"]: message for message in world.servers.messages("archive")}
    for name, values in sent.items():
        message, lines = got[name], "\n".join(values["body"].replace("\r\n", "\n").replace("\r", "\n").split("\n"))
        assert message["Subject"] == values["subject"] == message["X-Order"], values
        assert message["From"] == "Shop <shop@example.com>" and message["In-Reply-To"] is None and message["Bcc"] is None
        assert message["To"].addresses[0].addr_spec in values["to"]
        name = message["To"].addresses[0].display_name  # Python puts blanks between encoded words of names
        assert "".join(name.split()) == "".join(values["to"].rpartition(" <")[0].strip('"').split()), values
        assert message["Reply-To"].addresses[0].display_name == "Größe & Co"
        body = message.get_body(("plain",)).get_content()
        assert body.rstrip("\n") == lines.rstrip("\n"), (values, body)
        if "html" in values:
            assert message.get_content_type() == "multipart/alternative"
            assert message.get_body(("html",)).get_content().strip() == f"<p>{lines}</p>"
        assert message.defects == [], message.defects


SMUGGLED = [
    ("subject", "hello\r\nBcc: eve@example.com"), ("subject", "hello\neve"), ("subject", "nul\x00"),
    ("to", "ada@example.com\r\nRCPT TO:<eve@example.com>"), ("to", "ada@example.com>\r\nDATA"), ("to", "ada@example.com, eve@example.com"),
    ("to", "ada"), ("to", "<>"), ("to", "ada@example.com> SIZE=1"), ("to", []), ("to", [["ada@example.com"], 7]), ("to", "a b@example.com")]


def test_nothing_is_smuggled_in(world):
    wire = world.servers.wire()
    onced = world.start({"mail": provider(world.servers, wire)}, {"send": tool("mail", mail={"bcc": "{none?}"})})
    for n, (name, value) in enumerate(SMUGGLED):
        answer = onced.call("send", arguments(1, **{name: value}), key=f"smuggled{n}")
        assert answer.status == 422 and name in str(answer.body), answer
    assert wire.connections == 0 and not onced.operations()


def test_a_dry_run_shows_the_message(world):
    wire = world.servers.wire()
    onced = world.start({"mail": provider(world.servers, wire, username="shop", password=PASSWORD)},
                        {"send": tool("mail", redact=["/body"])})
    plan = onced.call("send", arguments(1), key="1", dry_run=True)
    request = plan["request"]
    assert request["headers"]["To"] == "user1@example.com" and request["headers"]["Subject"] == "order 1", plan
    assert request["body"] == {"text": "***"} and request["url"] == wire.url and PASSWORD not in str(plan.body)
    assert wire.connections == 0
