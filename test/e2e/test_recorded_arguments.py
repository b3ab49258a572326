"""What the ledger has recorded is what is sent, by whichever process: whole, however large it is, or not at all."""

from onced_e2e import ledgers, registry
from onced_e2e.judge import judge
from onced_e2e.registry import TEXT
from onced_e2e.wait import wait_until

FIELDS = {"name?": TEXT, "text?": TEXT}  # a request without any of them would be taken


def killed_on_the_wire(world, provider, arguments):
    roomy = registry.provider(provider.url, key=registry.KEY_CONTRACT, answer_bytes_max="16MB")
    onced = world.onced({"note": registry.write("notes", FIELDS, provider="roomy", look=False)}, server={"body_bytes_max": "16MB"},
                        providers={"roomy": roomy})
    provider.script("timeout_before_commit")
    operation = onced.submit("note", arguments, key="k")
    wait_until(lambda: len(provider.writes()) == 1, what="the request")
    onced.kill()
    return onced, operation


def test_large_ones_are_sent_again_whole(world, provider):
    text = "x" * 2_000_000
    onced, operation = killed_on_the_wire(world, provider, {"name": "n", "text": text})
    onced.start()
    assert onced.settled(operation).state == "completed_success"
    judge(onced, provider, operation, effects=1, dispatches=2)
    (made,) = provider.objects("notes")
    assert (made["name"], made["text"]) == ("n", text)


def test_unreadable_ones_are_not_sent(world, provider):
    onced, operation = killed_on_the_wire(world, provider, {"name": "n"})
    assert ledgers.change(onced.ledger, "UPDATE operations SET arguments = '{\"name\":' WHERE id = ?", (operation,)) == 1
    onced.start()
    wait_until(lambda: len(onced.attempt_rows(operation)) >= 3, what="more attempts")
    assert len(provider.requests()) == 1 and provider.effects() == 0
    assert {(row["outcome"], row["detail"]) for row in onced.attempt_rows(operation)[1:]} == {
        ("not_sent", "the recorded arguments can not be read")}
    assert onced.operation(operation).state != "completed_success"
