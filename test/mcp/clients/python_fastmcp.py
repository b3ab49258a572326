"""FastMCP's client: python_fastmcp.py URL TOOL ARGUMENTS."""

import asyncio
import json
import sys

from fastmcp import Client

URL, TOOL, ARGUMENTS = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])


async def attempt():
    try:
        async with Client(URL, timeout=20) as client:
            result = await client.call_tool(TOOL, ARGUMENTS, raise_on_error=False)
            return {"text": "\n".join(part.text for part in result.content if part.type == "text")}
    except BaseException as error:
        return {"error": repr(error)}


async def main():
    print(json.dumps({"first": await attempt(), "second": await attempt()}))


asyncio.run(main())
