"""What the provider counted decides; our own ledger only has to agree with it."""


def sent(onced, operation):
    """Attempt rows of calls whose bytes may have left."""
    return [row for row in onced.attempt_rows(operation) if row["kind"] == "call" and row["outcome"] != "not_sent"]


def judge(onced, provider, operation, effects, dispatches):
    """So many effects and so many requests at the provider, as many attempt rows, and one provider key on all of them."""
    assert provider.effects(operation) == effects, provider.truth()
    assert len(provider.writes(operation)) == dispatches, provider.writes(operation)
    assert len(sent(onced, operation)) == dispatches, onced.attempt_rows(operation)
    assert len(provider.keys(operation)) <= 1, provider.keys(operation)


def never_failed(onced, operation):
    """Nobody was ever told that it did not happen."""
    seen = onced.states_seen(operation)
    assert not seen & {"failed_permanent", "failed_retryable", "rejected"}, seen
