"""The scenario every Python SDK has to get through, told once.

An adapter hides what differs between major versions: `name`; `connect(url, handler)`, an asynchronous context
manager that gives an initialised client; `is_error(result)`; `input_schema(tool)`.
"""

import asyncio
from contextlib import AsyncExitStack

from checks import CuttingProxy, Checks, equal, settles_at, status_of, until

TOOLS = ["add", "echo", "notify", "slow"]
LOG = "notifications/message"


async def run(adapter, url):
    """Runs everything against the server at `url`; returns the exit code."""
    checks = Checks(adapter.name)
    async with CuttingProxy(url) as proxy, AsyncExitStack() as stack:
        main = Listening(adapter)
        await checks.check("connect", main.connect(stack, proxy.url))
        if main.client is None:
            return checks.finish()
        await common_checks(checks, adapter, main, url)
        await checks.check("reconnect by cursor after a cut", reconnect(main, proxy))
        await checks.check("DELETE, then 404", terminate(main, proxy.session_ids[0], url))
        await checks.check("leaving ends the session", leaving(adapter, url))
        await checks.check("connect again", connect_again(adapter, url))
    return checks.finish()


async def run_carried(adapter, url):
    """What there is of it over HTTP+SSE, where the stream at `url` carries the session: nothing is resumed or deleted."""
    checks = Checks(adapter.name)
    async with AsyncExitStack() as stack:
        main = Listening(adapter)
        await checks.check("connect", main.connect(stack, url))
        if main.client is None:
            return checks.finish()
        await common_checks(checks, adapter, main, url)
        await checks.check("connect again", connect_again(adapter, url))
    return checks.finish()


async def common_checks(checks, adapter, main, url):
    """What holds whatever carries the session."""
    await checks.check("ping", main.client.send_ping())
    await checks.check("list tools", list_tools(adapter, main))
    await checks.check("call", call_tools(main.client))
    await checks.check("unknown tool is an error", call_unknown(adapter, main))
    await checks.check("progress", progress(main))
    await checks.check("equal ids from two clients", equal_ids(adapter, url))
    await checks.check("notifications arrive exactly once", notifications(main))


class Listening:
    """A client and the methods of the notifications it heard."""

    def __init__(self, adapter):
        self.adapter = adapter
        self.client = None
        self.heard = []

    async def connect(self, stack, url):
        self.client = await stack.enter_async_context(self.adapter.connect(url, self._handle))

    async def _handle(self, message):
        notification = getattr(message, "root", message)
        if method := getattr(notification, "method", None):
            self.heard.append(method)

    def count(self, method):
        return self.heard.count(method)


async def list_tools(adapter, main):
    tools = (await main.client.list_tools()).tools
    equal(sorted(tool.name for tool in tools), TOOLS, "tool names")
    for tool in tools:
        equal(adapter.input_schema(tool)["type"], "object", f"input schema of {tool.name}")


def text_of(result):
    return result.content[0].text


async def call_tools(client):
    message = 'Grüße, 世界 \u2028 "quoted"'
    equal(text_of(await client.call_tool("echo", {"message": message})), message, "echo")
    equal(float(text_of(await client.call_tool("add", {"a": 19, "b": 23}))), 42.0, "add")


async def call_unknown(adapter, main):
    try:
        result = await main.client.call_tool("no-such-tool", {})
    except Exception as error:
        equal(error.error.code, -32602, "code")
    else:
        assert adapter.is_error(result), f"answered {result}"


async def progress(main):
    seen = []

    async def note(value, _total, _message):
        seen.append(value)

    await main.client.call_tool("slow", {"seconds": 0.6, "steps": 3}, progress_callback=note)
    assert len(seen) >= 3, f"{len(seen)} progress notifications"
    assert all(a < b for a, b in zip(seen, seen[1:])), f"progress must grow: {seen}"


async def equal_ids(adapter, url):
    """Two sessions whose clients number their requests alike, with calls of both in flight."""
    async with adapter.connect(url, ignore) as first, adapter.connect(url, ignore) as second:

        async def echo(client, message):
            equal(text_of(await client.call_tool("echo", {"message": message})), message, "answer")

        clients = {"first": first, "second": second}
        calls = [echo(client, f"{name} {i}") for name, client in clients.items() for i in range(20)]
        slow = first.call_tool("slow", {"seconds": 0.4, "steps": 2})
        await asyncio.gather(slow, *calls)


async def ignore(_message):
    pass


async def notify(client, kind):
    await client.call_tool("notify", {"kind": kind, "scope": "session"})


async def notifications(main):
    for kind in ["tools", "prompts", "resources"]:
        method = f"notifications/{kind}/list_changed"
        await notify(main.client, kind)
        await settles_at(lambda: main.count(method), 1, method)
    await notify(main.client, "message")
    await settles_at(lambda: main.count(LOG), 1, LOG)


async def reconnect(main, proxy):
    """The listener is cut; what is sent meanwhile and afterwards arrives once, by a GET of the SDK's own."""
    await until(lambda: proxy.open_streams >= 1, 5, lambda: "no listener stream is open")
    before, gets = main.count(LOG), proxy.gets
    proxy.cut()
    await notify(main.client, "message")
    await until(lambda: proxy.gets > gets, 10, lambda: "the SDK did not reconnect")
    await settles_at(lambda: main.count(LOG), before + 1, "sent while cut")
    await notify(main.client, "message")
    await settles_at(lambda: main.count(LOG), before + 2, "sent after the reconnect")


PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


async def all_404(url, session_id):
    equal(await status_of("POST", url, session_id, PING), 404, "POST")
    equal(await status_of("GET", url, session_id), 404, "GET")
    equal(await status_of("DELETE", url, session_id), 404, "DELETE")


async def terminate(main, session_id, url):
    """The session is deleted under its client, whose next request must fail at once."""
    status = await status_of("DELETE", url, session_id)
    assert 200 <= status < 300, f"DELETE gave {status}"
    await all_404(url, session_id)
    try:
        await asyncio.wait_for(main.client.send_ping(), 5)
    except TimeoutError as error:
        raise AssertionError("the client waits for a dead session") from error
    except Exception:
        return
    raise AssertionError("a ping in a dead session was answered")


async def leaving(adapter, url):
    """A client that leaves its context deletes its session."""
    async with CuttingProxy(url) as proxy:
        async with adapter.connect(proxy.url, ignore) as client:
            await client.send_ping()
            session_id = proxy.session_ids[0]
        await all_404(url, session_id)


async def connect_again(adapter, url):
    async with AsyncExitStack() as stack:
        again = Listening(adapter)
        await again.connect(stack, url)
        await call_tools(again.client)
        await notify(again.client, "tools")
        await settles_at(lambda: len(again.heard), 1, "notifications")
