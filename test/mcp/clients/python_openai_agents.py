"""OpenAI Agents with an MCP server and its retries set: python_openai_agents.py URL TOOL ARGUMENTS. The model is a script: it
calls the tool, calls it again whatever came back, and ends. A run that the framework gives up is begun again."""

import asyncio
import json
import sys

from agents import Agent, Runner, set_tracing_disabled
from agents.mcp import MCPServerStreamableHttp
from scripted_model import Script, text_of

URL = sys.argv[1]


async def run(model):
    async with MCPServerStreamableHttp(params={"url": URL}, max_retry_attempts=2, retry_backoff_seconds_base=0.05,
                                       client_session_timeout_seconds=20) as server:
        await Runner.run(Agent(name="agent", model=model, mcp_servers=[server]), "refund it")


async def main():
    set_tracing_disabled(True)
    told, model = [], Script()
    try:
        await run(model)
        told = [{"text": text_of(output)} for output in model.seen]
    except Exception as error:  # the framework's session ended with the lost answer
        told = [{"error": repr(error)}]
        model = Script()
        await run(model)
        told += [{"text": text_of(output)} for output in model.seen]
    print(json.dumps({"first": told[0], "second": told[1]}))


asyncio.run(main())
