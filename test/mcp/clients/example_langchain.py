"""Uses the tools of examples/clients/langchain_tools.py twice: example_langchain.py EXAMPLE TOOL ARGUMENTS."""

import asyncio
import json
import runpy
import sys


async def main():
    (tool,) = (tool for tool in await runpy.run_path(sys.argv[1])["tools"]() if tool.name == sys.argv[2])
    told = [await tool.ainvoke(json.loads(sys.argv[3])) for _ in range(2)]
    print(json.dumps({"told": [json.dumps(each) if not isinstance(each, str) else each for each in told]}))


asyncio.run(main())
