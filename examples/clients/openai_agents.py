"""OpenAI Agents with onced in front of the tools: python openai_agents.py "refund payment p1". Needs openai-agents, onced in the
PATH, and a registry file onced.yaml here. The framework may retry as it likes."""

import asyncio
import sys

from agents import Agent, Runner
from agents.mcp import MCPServerStdio


def onced():
    return MCPServerStdio(params={"command": "onced", "args": ["mcp", "--config", "onced.yaml"]}, max_retry_attempts=3,
                          client_session_timeout_seconds=60)


async def run(task, model=None):
    async with onced() as server:
        agent = Agent(name="assistant", instructions="Use the tools. Say only what they told you.", mcp_servers=[server], model=model)
        return (await Runner.run(agent, task)).final_output


if __name__ == "__main__":
    print(asyncio.run(run(" ".join(sys.argv[1:]))))
