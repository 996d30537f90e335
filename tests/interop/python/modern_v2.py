"""Python SDK, second major version, under 2026-07-28. Usage: python modern_v2.py URL ADMIN-URL FIXTURES-URL

The first URL is the built-in server's, with its admin listener; the last has what that one lacks: a tool that asks its client,
one that logs, resources.
"""

import asyncio
import sys
from contextlib import AsyncExitStack

from mcp import Client
from mcp_types import ElicitResult

from checks import Checks, equal, publish, until_metric
from scenario import TOOLS, call_tools, progress, text_of

REVISION = "2026-07-28"
EVENTS = ["ToolsListChanged", "PromptsListChanged", "ResourcesListChanged"]
METHODS = [f"notifications/{kind}/list_changed" for kind in ["tools", "prompts", "resources"]]
QUIET_S = 0.4


async def run(url, admin, fixtures):
    checks = Checks("python-sdk-v2-modern")
    async with AsyncExitStack() as stack:
        main = Main()
        await checks.check("discover", discover(stack, main, url))
        if main.client is None:
            return checks.finish()
        await checks.check("a client that may choose takes this era", choose(url))
        await checks.check("list tools", list_tools(main.client))
        await checks.check("call", call_tools(main.client))
        await checks.check("unknown tool is an error", call_unknown(main.client))
        await checks.check("progress", progress(main))
        await checks.check("many calls at once", call_many(main.client))
        await checks.check("cancelled by the end of its connection", cancel(main.client, admin))
        await checks.check("listen, and each published change once", listen(main.client, admin))
        await checks.check("a listen stream has what it asked for and no more", listen_to_one(main.client, admin))
        await checks.check(
            "nothing is left of streams that were closed",
            until_metric(admin, 'moorline_streams_held{kind="listen"}', 0),
        )
        await checks.check("the level of logs is a matter of the request", logs(fixtures))
        await checks.check("a question to the user comes as input_required", elicitation(fixtures))
        await checks.check("resources", resources(fixtures))
    return checks.finish()


class Main:
    """The client that most checks share."""

    client = None


async def discover(stack, main, url):
    # A version alone would be taken on trust: only a client that may choose asks.
    main.client = await stack.enter_async_context(Client(url, mode="auto"))
    equal(main.client.protocol_version, REVISION, "version")
    equal(main.client.server_info.name, "moorline", "server name")
    assert main.client.server_capabilities.tools.list_changed, "lists of tools may change"


async def choose(url):
    async with Client(url, mode=REVISION) as client:
        await call_tools(client)


async def list_tools(client):
    equal(sorted(tool.name for tool in (await client.list_tools()).tools), TOOLS, "tool names")


async def call_unknown(client):
    try:
        await client.call_tool("no-such-tool", {})
    except Exception as error:
        equal(error.error.code, -32602, "code")
    else:
        raise AssertionError("answered")


async def call_many(client):
    async def echo(message):
        equal(text_of(await client.call_tool("echo", {"message": message})), message, "answer")

    await asyncio.gather(*(echo(f"call {i}") for i in range(20)))


async def cancel(client, admin):
    """What is cancelled is not only forgotten by the client: nothing works on it any more."""
    slow = asyncio.create_task(client.call_tool("slow", {"seconds": 20, "steps": 20}))
    await until_metric(admin, "moorline_calls_in_flight", 1)
    slow.cancel()
    await asyncio.wait([slow])
    await until_metric(admin, "moorline_calls_in_flight", 0)
    await call_tools(client)


async def heard_by(subscription, heard):
    async for event in subscription:
        heard.append(type(event).__name__)


async def publish_all_to(admin, subscription, expected):
    heard = []
    listening = asyncio.create_task(heard_by(subscription, heard))
    for method in METHODS:
        equal((await publish(admin, method))["listens"], 1, "listen streams of the publication")
    await asyncio.sleep(QUIET_S)
    equal(heard, expected, "events")
    listening.cancel()


async def listen(client, admin):
    wanted = {"tools_list_changed": True, "prompts_list_changed": True, "resources_list_changed": True}
    async with client.listen(**wanted) as subscription:
        for name in wanted:
            assert getattr(subscription.honored, name), f"{name} is acknowledged"
        await publish_all_to(admin, subscription, EVENTS)


async def listen_to_one(client, admin):
    async with client.listen(prompts_list_changed=True) as subscription:
        heard = []
        listening = asyncio.create_task(heard_by(subscription, heard))
        for method in METHODS:
            await publish(admin, method)
        await asyncio.sleep(QUIET_S)
        equal(heard, [EVENTS[1]], "events")
        listening.cancel()


async def logs(fixtures):
    heard = []

    async def note(params):
        heard.append(params.level)

    async with Client(fixtures, mode=REVISION, logging_callback=note) as client:
        for level, expected in [(None, []), ("error", []), ("info", ["info"])]:
            heard.clear()
            meta = {"io.modelcontextprotocol/logLevel": level} if level else None
            await client.call_tool("test_logging_tool", {}, meta=meta)
            equal(heard, expected, f"messages at level {level}")


async def elicitation(fixtures):
    questions = []

    async def answer(_context, params):
        questions.append(params.message)
        return ElicitResult(action="accept", content={"username": "ada", "email": "ada@example.org"})

    async with Client(fixtures, mode=REVISION, elicitation_callback=answer) as client:
        result = await client.call_tool("test_elicitation", {"message": "Who are you?"})
        equal(questions, ["Who are you?"], "questions")
        assert "ada" in text_of(result), f"the answer: {text_of(result)}"


async def resources(fixtures):
    async with Client(fixtures, mode=REVISION) as client:
        uris = [str(resource.uri) for resource in (await client.list_resources()).resources]
        assert "test://static-text" in uris, f"resources: {uris}"
        assert (await client.read_resource("test://static-text")).contents[0].text, "no text"
        watched = "test://watched-resource"
        async with client.listen(resource_subscriptions=[watched]) as subscription:
            equal([str(uri) for uri in subscription.honored.resource_subscriptions], [watched], "acknowledged")


if __name__ == "__main__":
    sys.exit(asyncio.run(run(*sys.argv[1:])))
