"""Writes vectors.json anew with the providers' own libraries (sign.mjs; npm ci first). The unit test test_inbox_signature reads
the file, the end-to-end test signs live."""

import json
import pathlib
import subprocess

HERE = pathlib.Path(__file__).parent
NOW = 1795968000
STRIPE, OTHER = "whsec_test_secret_of_the_vectors", "whsec_another_secret"
STANDARD, STANDARD_OTHER = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_" + "b25lIG1vcmUgc2VjcmV0IGtleSE="
BODIES = [
    '{"id":"evt_1","type":"charge.succeeded","created":1795967999,"data":{"object":{"id":"ch_1"}}}',
    '{\n  "id": "evt_2",\n  "text": "Gr\u00fc\u00dfe \u20ac \U0001f600",\n  "n": 9007199254740993\n}\n',
    "{}",
]


def main():
    wanted = []
    for body in BODIES:
        for scheme, secret in (("stripe", STRIPE), ("stripe", OTHER), ("standard_webhooks", STANDARD), ("standard_webhooks", STANDARD_OTHER)):
            wanted.append({"scheme": scheme, "secret": secret, "body": body, "time": NOW, "id": f"msg_{len(wanted)}"})
    lines = "\n".join(json.dumps(each) for each in wanted) + "\n"
    done = subprocess.run(["node", HERE / "sign.mjs"], input=lines, capture_output=True, text=True, check=True)
    vectors = [{**each, **json.loads(line)} for each, line in zip(wanted, done.stdout.splitlines(), strict=True)]
    (HERE / "vectors.json").write_text(json.dumps({"now": NOW, "vectors": vectors}, indent=1) + "\n")
    print(f"{len(vectors)} vectors")


if __name__ == "__main__":
    main()
