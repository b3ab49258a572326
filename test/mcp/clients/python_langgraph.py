"""LangChain's MCP adapters in a LangGraph graph: python_langgraph.py URL TOOL ARGUMENTS. The model is a script: it calls the
tool, calls it again, and ends. The adapters open a session for each call."""

import asyncio
import json
import sys

from langchain_core.messages import AIMessage, ToolMessage
from langchain_mcp_adapters.client import MultiServerMCPClient
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

URL, TOOL, ARGUMENTS = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])


def model(state):
    turn = sum(isinstance(message, AIMessage) for message in state["messages"])
    calls = [{"name": TOOL, "args": ARGUMENTS, "id": f"call_{turn}"}] if turn < 2 else []
    return {"messages": [AIMessage(content="" if calls else "done", tool_calls=calls)]}


def told(error: Exception) -> str:
    return f"error: {error!r}"


def text_of(message):
    if isinstance(message.content, str):
        return message.content
    return "\n".join(part.get("text", "") for part in message.content)


async def main():
    client = MultiServerMCPClient({"onced": {"url": URL, "transport": "streamable_http"}})
    tools = await client.get_tools()
    graph = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_node("tools", ToolNode(tools, handle_tool_errors=told))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", lambda state: "tools" if state["messages"][-1].tool_calls else END)
    graph.add_edge("tools", "model")
    state = await graph.compile().ainvoke({"messages": [("user", "refund it")]})
    first, second = (message for message in state["messages"] if isinstance(message, ToolMessage))
    print(json.dumps({"first": {"text": text_of(first)}, "second": {"text": text_of(second)}}))


asyncio.run(main())
