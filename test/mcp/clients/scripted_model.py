"""A model that is a script: it calls the tool of argv[2] with argv[3], calls it again whatever came back, and ends."""

import json
import sys

from agents.items import ModelResponse
from agents.models.interface import Model
from agents.usage import Usage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

TOOL, ARGUMENTS = sys.argv[2], sys.argv[3]


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
