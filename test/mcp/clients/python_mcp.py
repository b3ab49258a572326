"""The Python SDK's client: python_mcp.py URL TOOL ARGUMENTS. Prints what a model would have seen of both calls."""

import asyncio
import json
import sys

from mcp.client.session import ClientSession
from mcp.client.streamable_http import streamable_http_client

URL, TOOL, ARGUMENTS = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])


async def call():
    """In a session of its own, as a client does that connects anew after an error."""
    async with streamable_http_client(URL) as streams:
        async with ClientSession(streams[0], streams[1]) as session:
            await session.initialize()
            result = await session.call_tool(TOOL, ARGUMENTS, read_timeout_seconds=20)
            return "\n".join(part.text for part in result.content if part.type == "text")


async def attempt():
    try:
        return {"text": await call()}
    except BaseException as error:  # the SDK raises groups
        return {"error": repr(error)}


async def main():
    print(json.dumps({"first": await attempt(), "second": await attempt()}))


asyncio.run(main())
