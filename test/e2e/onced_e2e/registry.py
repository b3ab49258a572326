"""Registry files as Python values (JSON is YAML). Times are a tenth or less of what a production file says, in the same
proportions, so that the scenarios stay what they are and take a second."""

import json

from onced_e2e import ledgers

KEY_CONTRACT = {"header": "Idempotency-Key", "retention": "24h", "in_use": [409], "mismatch": [422]}
NO_EFFECT = [400, 401, 402, 403, 404, 405, 410, 415]  # the default without what the key contract uses otherwise

# Time-outs of providers. Brief: where one has to pass, or where much gets lost, as nothing is proven absent before it has passed. Patient:
# where none is to pass, how long ever provider or daemon stand still. (On PostgreSQL what a killed gateway had is taken up only after it.)
BRIEF = "500ms"
PATIENT = "3s" if ledgers.POSTGRES else "20s"


def provider(url, key=None, **more):
    section = {
        "base_url": url,
        "timeout": BRIEF,
        "no_effect": NO_EFFECT,
        "request_id": {"header": "Request-Id"},
        "breaker": {"failures": 0},
        **more,
    }
    if key:
        section["key"] = key
    return section


def lookup(collection, limit=100, **more):
    """By the client reference, paging to the end."""
    return {
        "request": {"path": f"/v1/{collection}", "query": {"reference": "{$operation}", "limit": str(limit)}},
        "items": "/data",
        "match": {"/reference": "{$operation}"},
        "next": {"more": "/has_more", "last_id": "/id", "query": "starting_after"},
        "external_id": "/id",
        **more,
    }


def write(collection, fields, keyed=True, look=True, **more):
    """A tool that creates an object in a collection of the fake provider. fields: name → JSON Schema; a trailing ? makes a
    field optional. keyed: the provider's key is used, else the tool is external_weak at the provider without keys."""
    names = [name.rstrip("?") for name in fields]
    tool = {
        "class": "external_idempotent" if keyed else "external_weak",
        "provider": "keyed" if keyed else "plain",
        "input_schema": {
            "type": "object",
            "required": [name for name in fields if not name.endswith("?")],
            "properties": {name.rstrip("?"): schema for name, schema in fields.items()},
            "additionalProperties": False,
        },
        "request": {
            "path": f"/v1/{collection}",
            "json": {**{name: "{" + name + "?}" for name in names}, "reference": "{$operation}"},
        },
        "response": {"external_id": "/id"},
        "settle": "300ms",
        "absent_times": 2,
        "lookup_interval": "50ms",
        "lookup_interval_max": "200ms",
        "give_up": "30s",
        "watch": [],
        "retry": {"attempts": 5, "total": "1h", "backoff": "50ms", "backoff_max": "200ms"},
        "wait": "10s",
    }
    if look:
        tool["lookup"] = lookup(collection)
    tool.update(more)
    return {name: value for name, value in tool.items() if value is not None}


TEXT = {"type": "string"}
NUMBER = {"type": "number"}
INTEGER = {"type": "integer"}


def refund(**more):
    """The tool that most scenarios use: {payment_id, amount_cents, note?}."""
    return write("refunds", {"payment_id": TEXT, "amount_cents": INTEGER, "note?": TEXT}, **more)


def file(url, tools, providers=None, server=None, timeout=BRIEF, **more):
    return {
        **more,
        "onced": 1,
        "server": {"listen": "127.0.0.1:0", "auth": "none", "stop_timeout": "3s", "log": "debug", **(server or {})},
        "ledger": {"path": "onced.db"},
        "providers": {
            "keyed": provider(url, key=KEY_CONTRACT, timeout=timeout),
            "plain": provider(url, timeout=timeout),
            **(providers or {}),
        },
        "tools": tools,
    }


def text(registry):
    return json.dumps(registry, indent=1, ensure_ascii=False)
