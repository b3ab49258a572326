"""LangChain with onced in front of the tools: its MCP adapters turn onced's tools into LangChain tools for any agent or graph. Needs
langchain-mcp-adapters, onced in the PATH, and a registry file onced.yaml here. For a daemon that runs already (`onced serve`) use
{"transport": "streamable_http", "url": "http://127.0.0.1:7070/mcp"}."""

import asyncio

from langchain_mcp_adapters.client import MultiServerMCPClient

CONNECTIONS = {"onced": {"transport": "stdio", "command": "onced", "args": ["mcp", "--config", "onced.yaml"]}}


async def tools():
    return await MultiServerMCPClient(CONNECTIONS).get_tools()


if __name__ == "__main__":
    for tool in asyncio.run(tools()):
        print(f"{tool.name}: {tool.description}")
