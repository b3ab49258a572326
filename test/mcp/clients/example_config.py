"""Starts the server that a client's configuration file names, as the client would: example_config.py FILE TOOL ARGUMENTS. Over
stdio, with the Python SDK."""

import asyncio
import json
import os
import sys

from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client

with open(sys.argv[1], encoding="utf-8") as file:
    contents = json.load(file)
(entry,) = (contents.get("mcpServers") or contents["servers"]).values()


async def main():
    parameters = StdioServerParameters(command=entry["command"], args=entry["args"], env=dict(os.environ))
    async with stdio_client(parameters) as (read, write):
        async with ClientSession(read, write) as session:
            await session.initialize()
            names = [tool.name for tool in (await session.list_tools()).tools]
            told = [await session.call_tool(sys.argv[2], json.loads(sys.argv[3])) for _ in range(2)]
            print(json.dumps({"tools": names, "told": ["\n".join(part.text for part in each.content) for each in told]}))


asyncio.run(main())
