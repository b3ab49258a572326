"""Runs examples/clients/openai_agents.py with a scripted model: example_openai_agents.py EXAMPLE TOOL ARGUMENTS."""

import asyncio
import json
import runpy
import sys

from agents import set_tracing_disabled

EXAMPLE, sys.argv = sys.argv[1], [sys.argv[0], "", *sys.argv[2:]]
# argv is now: program, URL (none), TOOL, ARGUMENTS, as the script of the model reads it
script = runpy.run_path(__file__.replace("example_openai_agents", "scripted_model"))
model = script["Script"]()
set_tracing_disabled(True)
asyncio.run(runpy.run_path(EXAMPLE)["run"]("refund it", model))
print(json.dumps({"told": [script["text_of"](output) for output in model.seen]}))
