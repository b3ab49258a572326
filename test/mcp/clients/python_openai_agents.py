"""OpenAI Agents with an MCP server and its retries set: python_openai_agents.py URL TOOL ARGUMENTS. The model is a script: it
calls the tool, calls it again whatever came back, and ends. A run that the framework gives up is begun again."""

import asyncio
import json
import sys

from agents import Agent, Runner, set_tracing_disabled
from agents.items import ModelResponse
from agents.mcp import MCPServerStreamableHttp
from agents.models.interface import Model
from agents.usage import Usage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

URL, TOOL, ARGUMENTS = sys.argv[1], sys.argv[2], sys.argv[3]


class Script(Model):
    def __init__(self):
        self.turn = 0
        self.seen = []

    async def get_response(self, system_instructions, input, *args, **kwargs):
        self.turn += 1
        if isinstance(input, list):
            self.seen = [item["output"] for item in input if item.get("type") == "function_call_output"]
        if self.turn <= 2:
            output = ResponseFunctionToolCall(type="function_call", id=f"fc_{self.turn}", call_id=f"call_{self.turn}", name=TOOL,
                                              arguments=ARGUMENTS)
        else:
            text = ResponseOutputText(type="output_text", text="done", annotations=[])
            output = ResponseOutputMessage(type="message", id="msg_1", role="assistant", status="completed", content=[text])
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *args, **kwargs):
        raise NotImplementedError("the test does not stream")


def text_of(output):
    if isinstance(output, str):
        return output
    return json.dumps(output)


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
