"""What both client programs share: one line per check, deadlines, bare requests, and a proxy that cuts streams."""

import asyncio
import json
import re
import traceback
import urllib.error
import urllib.request
from urllib.parse import urlsplit

CHECK_DEADLINE_S = 60


class Checks:
    """Runs named checks in order and prints a line for each; a failed one does not stop the next."""

    def __init__(self, client):
        self.client = client
        self.passed = 0
        self.failed = 0

    async def check(self, name, body):
        # Not `wait_for`: what a check enters has to be left by the same task.
        try:
            async with asyncio.timeout(CHECK_DEADLINE_S):
                await body
        except Exception as error:
            self.failed += 1
            print(f"FAIL {self.client}: {name}: {type(error).__name__}: {error}", flush=True)
            traceback.print_exception(error)
        else:
            self.passed += 1
            print(f"ok   {self.client}: {name}", flush=True)

    def finish(self):
        print(f"{self.client}: {self.passed} passed, {self.failed} failed", flush=True)
        return 0 if self.failed == 0 else 1


def equal(actual, expected, what):
    assert actual == expected, f"{what}: {actual!r} instead of {expected!r}"


async def until(condition, seconds, describe):
    """Waits until `condition()` holds; fails after `seconds` with what `describe()` then says."""
    end = asyncio.get_running_loop().time() + seconds
    while not condition():
        assert asyncio.get_running_loop().time() < end, f"not after {seconds} s: {describe()}"
        await asyncio.sleep(0.01)


async def settles_at(count, expected, what, quiet_s=0.4):
    """The number reaches `expected` and stays there: once means not twice."""
    await until(lambda: count() >= expected, 10, lambda: f"{what}: {count()} of {expected}")
    await asyncio.sleep(quiet_s)
    equal(count(), expected, what)


class CuttingProxy:
    """Forwards TCP to the server at `url`, resets the connections that carry a GET on demand, and notes the
    session ids it sees, which not every SDK shows."""

    def __init__(self, url):
        parts = urlsplit(url)
        self.target = (parts.hostname, parts.port)
        self.path = parts.path
        self.gets = 0
        self.session_ids = []
        self._streams = set()
        self._connections = {}

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}{self.path}"
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for pair in self._connections.values():
            for writer in pair:
                writer.transport.abort()
        if self._connections:
            await asyncio.wait(self._connections, timeout=2)

    @property
    def open_streams(self):
        return len(self._streams)

    def cut(self):
        for pair in list(self._streams):
            for writer in pair:
                writer.transport.abort()
        self._streams.clear()

    async def _serve(self, reader, writer):
        upstream_reader, upstream_writer = await asyncio.open_connection(*self.target)
        pair = (writer, upstream_writer)
        self._connections[asyncio.current_task()] = pair

        def towards_server(data):
            if data.startswith(b"GET "):
                self.gets += 1
                self._streams.add(pair)

        def towards_client(data):
            for line in data.split(b"\r\n"):
                if line.lower().startswith(b"mcp-session-id:"):
                    self.session_ids.append(line.split(b":", 1)[1].strip().decode())

        ways = [
            asyncio.create_task(_copy(reader, upstream_writer, towards_server)),
            asyncio.create_task(_copy(upstream_reader, writer, towards_client)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._streams.discard(pair)
            del self._connections[asyncio.current_task()]
            for end in pair:
                end.close()
            await asyncio.gather(*ways, return_exceptions=True)


async def _copy(reader, writer, look):
    try:
        while data := await reader.read(65536):
            look(data)
            writer.write(data)
            await writer.drain()
    except OSError:
        pass


async def status_of(method, url, session_id, message=None):
    """The status of one bare request in a session."""
    headers = {"accept": "application/json, text/event-stream", "mcp-session-id": session_id}
    body = None
    if message is not None:
        headers["content-type"] = "application/json"
        body = json.dumps(message).encode()
    request = urllib.request.Request(url, data=body, headers=headers, method=method)

    def send():
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                return response.status
        except urllib.error.HTTPError as error:
            return error.code

    return await asyncio.to_thread(send)


async def publish(admin, method):
    """Publishes a notification to everyone through the admin listener; returns what became of it."""
    body = json.dumps({"to": "all", "method": method}).encode()
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"{admin}publish", data=body, headers=headers, method="POST")
    return json.loads(await asyncio.to_thread(_read, request))


async def until_metric(admin, name, expected):
    """Waits until the sum over all shards of a metric, named as without its shard, is `expected`."""
    end = asyncio.get_running_loop().time() + 5
    while True:
        text = (await asyncio.to_thread(_read, f"{admin}metrics")).decode()
        lines = [re.sub(r'shard="\d+",?', "", line).replace("{}", "") for line in text.splitlines()]
        values = [float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"{name} ")]
        assert values, f"there is no metric {name}"
        if sum(values) == expected:
            return
        assert asyncio.get_running_loop().time() < end, f"{name}: {sum(values)} instead of {expected}"
        await asyncio.sleep(0.02)


def _read(request):
    with urllib.request.urlopen(request, timeout=10) as response:
        return response.read()
