"""The Python SDK in front of a real stdio program. Usage: python stdio_v1.py BINARY COMMAND ARGS…"""

import asyncio
import re
import signal
import sys
from contextlib import asynccontextmanager

from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CreateMessageResult, ElicitResult, TextContent

from checks import Checks, equal


@asynccontextmanager
async def behind(binary, flags, command):
    """The URL of a server with `command` behind it, which has to stop in good order."""
    settings = ["serve", "--listen", "127.0.0.1:0", "--shards", "1", *flags, "--", *command]
    process = await asyncio.create_subprocess_exec(binary, *settings, stderr=asyncio.subprocess.PIPE)
    async for line in process.stderr:
        if found := re.match(r"listening on (\S+)", line.decode()):
            break
    rest = asyncio.create_task(process.stderr.read())
    try:
        yield found.group(1)
    finally:
        process.send_signal(signal.SIGTERM)
        await rest
        equal(await process.wait(), 0, "exit code of the server")


@asynccontextmanager
async def connect(url, **handlers):
    async with streamable_http_client(url) as (reader, writer, _session_id):
        async with ClientSession(reader, writer, **handlers) as client:
            await client.initialize()
            yield client


def text_of(result):
    return result.content[0].text


async def calls(url):
    async with connect(url) as client:
        equal(text_of(await client.call_tool("echo", {"message": "hi"})), "Echo: hi", "echo")
        tools = {tool.name for tool in (await client.list_tools()).tools}
        assert "echo" in tools, tools
        assert (await client.list_resources()).resources
        assert (await client.list_prompts()).prompts


async def progress(url):
    seen = []

    async def note(value, _total, _message):
        seen.append(value)

    async with connect(url) as client:
        arguments = {"duration": 0.6, "steps": 3}
        await client.call_tool("trigger-long-running-operation", arguments, progress_callback=note)
    equal(seen, [1, 2, 3], "progress")


async def questions(url):
    async def sample(_context, _params):
        content = TextContent(type="text", text="the model said this")
        return CreateMessageResult(role="assistant", content=content, model="m")

    async def elicit(_context, _params):
        return ElicitResult(action="accept", content={"name": "Ada"})

    async with connect(url, sampling_callback=sample, elicitation_callback=elicit) as client:
        arguments = {"prompt": "Hi", "maxTokens": 9}
        sampled = await client.call_tool("trigger-sampling-request", arguments)
        assert "the model said this" in str(sampled.content), sampled
        elicited = await client.call_tool("trigger-elicitation-request", {})
        assert "Ada" in str(elicited.content), elicited


async def together(url):
    async def one(number):
        async with connect(url) as client:
            for call in range(3):
                message = f"session {number} call {call}"
                equal(text_of(await client.call_tool("echo", {"message": message})), f"Echo: {message}", "echo")

    await asyncio.gather(*(one(number) for number in range(10)))


async def main(binary, command):
    checks = Checks("stdio-python-sdk-v1")
    for mode in ["per-session", "shared"]:
        async with behind(binary, ["--stdio-mode", mode], command) as url:
            await checks.check(f"{mode}: calls", calls(url))
            await checks.check(f"{mode}: progress", progress(url))
            if mode == "per-session":
                await checks.check(f"{mode}: sampling and elicitation", questions(url))
            await checks.check(f"{mode}: ten at once", together(url))
    return checks.finish()


sys.exit(asyncio.run(main(sys.argv[1], sys.argv[2:])))
