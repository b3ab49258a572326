"""Figures that tests measure. They are printed; where ONCED_FIGURES names a file, evidence/ reads them there, one JSON line
each: {"name": …, "text": …, further values}."""

import json
import os


def figure(name, text, **values):
    print(text)
    path = os.environ.get("ONCED_FIGURES")
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"name": name, "text": text, **values}) + "\n")
