"""A small server on the Python SDK over standard input and output, to be put behind the server under test."""

import asyncio

from mcp.server.fastmcp import Context, FastMCP
from mcp.types import SamplingMessage, TextContent
from pydantic import BaseModel

server = FastMCP("python-stdio")
notes: list[str] = []


class Name(BaseModel):
    name: str


@server.tool()
def add(a: float, b: float) -> float:
    return a + b


@server.tool()
def remember(note: str) -> list[str]:
    """Keeps a note in this process and gives all it has."""
    notes.append(note)
    return notes


@server.tool()
async def count(steps: int, seconds: float, ctx: Context) -> str:
    for step in range(steps):
        await asyncio.sleep(seconds / steps)
        await ctx.report_progress(step + 1, steps)
    return f"counted to {steps}"


@server.tool()
async def ask_name(ctx: Context) -> str:
    answer = await ctx.elicit("Who are you?", Name)
    return answer.data.name if answer.action == "accept" else answer.action


@server.tool()
async def ask_model(prompt: str, ctx: Context) -> str:
    message = SamplingMessage(role="user", content=TextContent(type="text", text=prompt))
    answer = await ctx.session.create_message(messages=[message], max_tokens=10)
    return answer.content.text


@server.resource("note://{index}")
def note(index: str) -> str:
    return f"note {index}"


server.run()
