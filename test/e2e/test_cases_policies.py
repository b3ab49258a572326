"""Scenarios of the case bank that guard mode, entities and windows play once more (issue 5): what the application performs itself
is counted in the application."""

import threading
import time

import pytest

from onced_e2e import ledgers, registry
from onced_e2e.client import Client
from onced_e2e.judge import judge
from onced_e2e.registry import INTEGER, TEXT
from onced_e2e.wait import together, wait_until

from test_cases_repeats import later
from test_guard import say


def schema(fields):
    return {"type": "object", "required": list(fields), "properties": fields, "additionalProperties": False}


def guarded(fields, key, lease="30s", **more):
    return {"class": "external_weak", "key": key, "guard_mode": {"lease": lease}, "input_schema": schema(fields), "wait": "0", **more}


def begin(onced, tool, arguments, wait_ms=0, **coordinates):
    headers = {"Onced-Principal": coordinates.pop("principal")} if "principal" in coordinates else {}
    return Client(onced.port, headers).post(f"/v1/guard/{tool}/begin", {"arguments": arguments, "wait_ms": wait_ms, **coordinates})


# ---- S58: a dead-letter queue gives the message other coordinates ----


def test_S58_a_consumer_claims_each_effect_of_a_message(world):
    """A consumer performs both effects itself. Identity is the message's; claims last until no tier delivers any more."""
    fields = {"message": TEXT, "topic": TEXT, "partition": INTEGER, "offset": INTEGER}
    coordinates = ["/topic", "/partition", "/offset"]
    again = {"attempts": 100, "total": "1h", "backoff": "10ms", "backoff_max": "10ms"}
    onced = world.onced({f"{effect}.send": guarded(fields, effect + ":{message}", volatile=coordinates, retry=again, while_in_doubt="allow")
                         for effect in ("chat", "mail")})
    sent, down = {"chat": 0, "mail": 0}, True

    def handle(effect, arguments, delivery):
        """What a consumer does with each effect; True when it is done."""
        tool = f"{effect}.send"
        answer = wait_until(lambda: (got := begin(onced, tool, arguments, session_id=delivery))["decision"] != "wait" and got, what="its turn")
        if answer["decision"] == "execute":
            if effect == "mail" and down:
                say(onced.client, "fail", answer, tool, effect="none", retry=True, error={"message": "mail server is down"})
                return False
            sent[effect] += 1
            say(onced.client, "complete", answer, tool, result={"delivery": delivery})
            return True
        assert answer["decision"] == "replay", answer
        return answer["operation"]["status"] == "completed_success"

    def deliver(topic, partition, offset, times=1):
        for n in range(times):
            arguments = {"message": "m", "topic": topic, "partition": partition, "offset": offset}
            done = [handle(effect, arguments, f"{topic}/{partition}/{offset}#{n}") for effect in ("chat", "mail")]
        return all(done)

    assert not deliver("orders", 3, 17, times=3) and sent == {"chat": 1, "mail": 0}
    onced.restart()
    assert not deliver("orders.dlq", 0, 1) and sent == {"chat": 1, "mail": 0}
    down = False
    assert deliver("orders.dlq", 0, 1) and deliver("orders.dlq", 0, 1) and sent == {"chat": 1, "mail": 1}
    chat, mail = (onced.operations(tool=f"{effect}.send") for effect in ("chat", "mail"))
    assert len(chat) == len(mail) == 1, "one operation per effect, whatever the coordinates"
    outcomes = [row["outcome"] for row in onced.attempt_rows(mail[0]["operation_id"])]
    assert len(outcomes) == 5 and outcomes[-1] == "success" and "success" not in outcomes[:-1], outcomes


# ---- S82: parallel agents, one intent ----


def test_S82_the_claim_is_taken_before_the_work(world):
    """Guard mode: the business key is claimed before anything is done; the loser and a latecomer get the winner's pull request."""
    tool = guarded({"repo": TEXT, "issue": INTEGER, "title": TEXT}, "pull:{repo}:{issue}", on_mismatch="replay")
    onced = world.onced({"pull.create": tool})
    opened = []

    def agent(name):
        answer = begin(onced, "pull.create", {"repo": "r", "issue": 7, "title": f"fix, says {name}"}, wait_ms=10000, principal=name,
                       run_id=f"run of {name}")
        if answer["decision"] == "execute":
            time.sleep(0.3)  # the work
            opened.append(f"pull/{len(opened) + 1}")
            answer = say(Client(onced.port, {"Onced-Principal": name}), "complete", answer, "pull.create", external_id=opened[-1])
        return answer["operation"]

    at_once = together([lambda n=n: agent(f"agent-{n}") for n in range(8)])
    onced.stop()
    later(onced, 4)
    onced.start()
    answers = [*at_once, agent("agent-late")]
    assert opened == ["pull/1"]
    assert {each["external_id"] for each in answers} == {"pull/1"} and len({each["operation_id"] for each in answers}) == 1


def test_S82_keys_of_their_own_and_one_entity(world, provider):
    """Each agent has a key of its own, so that no key catches it: the issue is held by one of them, and the window remembers it."""
    tool = registry.write("pulls", {"repo": TEXT, "issue": INTEGER}, keyed=False, while_in_doubt="allow",
                          entities=[{"type": "issue", "id": "{repo}#{issue}", "exclusive": "reject"}],
                          window={"key": "pull:{repo}:{issue}", "per": "24h", "override": "denied"})
    onced = world.onced({"pull.create": tool})
    provider.config(latency_ms=300)

    def create(agent):
        return onced.call("pull.create", {"repo": "r", "issue": 7}, key=f"key of {agent}", principal=agent, client=Client(onced.port))

    answers = together([lambda n=n: create(f"agent-{n}") for n in range(8)])
    winner = next(answer for answer in answers if answer.status == 201)
    losers = [answer for answer in answers if answer is not winner]
    assert {answer.problem for answer in losers} <= {"entity_busy", "window"} and len(losers) == 7, losers
    onced.restart()
    late = create("agent-late")
    assert (late.status, late.problem) == (409, "window"), late
    assert {answer["operation_id"] for answer in (*losers, late)} == {winner.id}, "they are told whose it is"
    judge(onced, provider, winner.id, effects=1, dispatches=1)
    assert provider.effects() == 1


# ---- S68: the end of a claim ----


@pytest.mark.parametrize("stall", ["the worker stalls", "the worker is replaced"])
def test_S68_the_end_of_a_lease_drops_no_work(world, stall):
    """Jobs are claimed in tens with a lease of 1 s (3 s where each claim costs journeys to a server); the worker stalls for longer
    before it begins. The end of a lease changes who may act: the work is still there, is done once, and a worker that was overtaken
    knows it."""
    patient = {"attempts": 100, "total": "1h", "backoff": "10ms", "backoff_max": "10ms"}
    onced = world.onced({"job.run": guarded({"job": INTEGER}, "job:{job}", lease="3s" if ledgers.POSTGRES else "1s", retry=patient, while_in_doubt="allow")})
    done, lock = [], threading.Lock()

    def claim(jobs):
        return {job: begin(onced, "job.run", {"job": job}, executor=f"worker-{time.monotonic_ns()}") for job in jobs}

    def work(claims):
        """Renews each claim before the effect: without it nothing is performed."""
        for job, answer in claims.items():
            if answer["decision"] != "execute":
                continue
            if say(onced.client, "heartbeat", answer, "job.run").problem == "not_possible":
                say(onced.client, "fail", answer, "job.run", effect="none", retry=True, error={"message": "came too late"})
                continue
            with lock:
                done.append(job)
            say(onced.client, "complete", answer, "job.run", result={"job": job})

    def state(job):
        return onced.by_key("job.run", f"job:{job}").state

    overtaken = claim(range(10))
    assert {answer["decision"] for answer in overtaken.values()} == {"execute"}
    wait_until(lambda: {state(job) for job in range(10)} == {"unknown_outcome"}, what="the leases' end")
    assert {answer["decision"] for answer in claim(range(10)).values()} == {"unknown"}, "silence is no permission to do it again"
    if stall == "the worker is replaced":
        onced.restart()
    work(overtaken)
    assert done == [], "an overtaken worker performs nothing"
    for start in range(0, 50, 10):
        jobs = set(range(start, start + 10))  # again what a lease ended over before it was begun
        wait_until(lambda jobs=jobs: work(claim(jobs - set(done))) or jobs <= set(done), 30, what="the end of ten jobs")
    assert sorted(done) == list(range(50)), "none lost, none twice"
    assert {state(job) for job in range(50)} == {"completed_success"}
