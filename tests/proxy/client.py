"""Tells one scenario through each proxy, all at the same time, and prints one line: N passed, N failed.

    client.py ports COUNT
    client.py check ADMIN-URL NAME=PORT…

Standard library only. A proxy whose name begins with `silent` stands before a server without keep-alives.
"""

import http.client
import json
import socket
import sys
import threading
import time
import urllib.request

HELD_S = 68
HOST = "mcp.example.org"
passed, failures, lock = 0, [], threading.Lock()


def main(command, *arguments):
    if command == "ports":
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(int(arguments[0]))]
        print(*(it.getsockname()[1] for it in sockets))
        return
    admin, *proxies = arguments
    threads = [threading.Thread(target=tell, args=(admin, *proxy.split("="))) for proxy in proxies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for failure in failures:
        print("FAILED:", failure, file=sys.stderr)
    print(f"{passed} passed, {len(failures)} failed")
    sys.exit(bool(failures))


def tell(admin, name, port):
    try:
        client = Client(int(port))
        if name.startswith("silent"):
            silent_stream(name, client)
        else:
            scenario(name, client, admin)
    except Exception as error:
        expect(f"{name}: goes through", False, repr(error))


def scenario(name, client, admin):
    result = client.call("echo", {"message": "hello"})
    expect(f"{name}: a call is answered", "hello" in json.dumps(result), result)
    large = "x" * (3 * 1024 * 1024)
    result = client.call("echo", {"message": large})
    expect(f"{name}: a large body goes both ways", large in json.dumps(result), "another answer")
    events = client.stream_of_call("slow", {"seconds": 3, "steps": 3})
    spread = events[-1][0] - events[0][0]
    expect(f"{name}: events of a call come one by one", len(events) >= 3 and spread > 1, f"{len(events)} in {spread:.1f} s")
    stream = client.listen()
    for attempt in range(3):
        late = client.publish_to(admin, stream)
        expect(f"{name}: notification {attempt} comes at once", late is not None and late < 1, late)
    start = time.monotonic()
    comments = 0
    while time.monotonic() - start < HELD_S:
        line = stream.readline()
        if not line:
            break
        comments += line.startswith(b":")
    held = time.monotonic() - start
    expect(f"{name}: a silent stream is held for {HELD_S} s", held >= HELD_S and comments >= 4, f"{held:.0f} s, {comments} comments")
    late = client.publish_to(admin, stream)
    expect(f"{name}: and still works", late is not None and late < 1, late)
    status = client.delete()
    expect(f"{name}: a session is deleted", status in (200, 202, 204), status)
    expect(f"{name}: and its stream ends", stream.read() is not None, "it does not")
    status = client.delete()
    expect(f"{name}: and is gone", status == 404, status)


def silent_stream(name, client):
    stream = client.listen()
    start = time.monotonic()
    stream.fp.raw._sock.settimeout(HELD_S)
    try:
        stream.read()
        ended = True
    except (http.client.IncompleteRead, ConnectionError):
        ended = True
    except TimeoutError:
        ended = False
    held = time.monotonic() - start
    expect(f"{name}: is cut without keep-alives", ended and 50 < held < HELD_S, f"held for {held:.0f} s")


def expect(what, holds, found):
    global passed
    with lock:
        if holds:
            passed += 1
        else:
            failures.append(f"{what}: {str(found)[:300]}")


class Client:
    """One session."""

    def __init__(self, port):
        self.port, self.id, self.session = port, 0, None
        deadline = time.monotonic() + 20
        while True:
            try:
                response = self.post("initialize", {
                    "protocolVersion": "2025-11-25", "capabilities": {},
                    "clientInfo": {"name": "proxy", "version": "1"}})
                if response.status == 200:
                    break
                problem = response.status
            except ConnectionError as error:
                problem = error
            # A proxy that starts, or has not checked its server yet.
            if time.monotonic() > deadline:
                raise RuntimeError(f"no session: {problem}")
            time.sleep(0.1)
        self.session = response.getheader("Mcp-Session-Id")
        response.read()
        self.post("notifications/initialized", None, request=False).read()

    def request(self, method, body=None, accept="application/json, text/event-stream"):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=90)
        fields = {"Host": HOST, "Accept": accept}
        if body is not None:
            fields["Content-Type"] = "application/json"
        if self.session:
            fields |= {"Mcp-Session-Id": self.session, "MCP-Protocol-Version": "2025-11-25"}
        connection.request(method, "/mcp", body=body, headers=fields)
        response = connection.getresponse()
        response.kept = connection
        return response

    def post(self, method, params, request=True):
        self.id += 1
        message = {"jsonrpc": "2.0", "method": method}
        if request:
            message["id"] = self.id
        if params is not None:
            message["params"] = params
        return self.request("POST", json.dumps(message))

    def call(self, tool, arguments):
        response = self.post("tools/call", {"name": tool, "arguments": arguments})
        body = response.read().decode()
        if response.getheader("Content-Type", "").startswith("text/event-stream"):
            body = [line[5:] for line in body.splitlines() if line.startswith("data:") and len(line) > 6][-1]
        return json.loads(body)["result"]

    def stream_of_call(self, tool, arguments):
        """The messages of a streamed call, each with the time it came."""
        response = self.post("tools/call", {"name": tool, "arguments": arguments, "_meta": {"progressToken": 1}})
        events = []
        while line := response.readline():
            if line.startswith(b"data:") and len(line) > 7:
                events.append((time.monotonic(), line))
        return events

    def listen(self):
        response = self.request("GET", accept="text/event-stream")
        assert response.status == 200, response.status
        return response

    def publish_to(self, admin, stream):
        """How long a notification takes to come; None if it does not."""
        name = f"notifications/example.com/proxy-{self.port}-{time.monotonic_ns()}"
        document = json.dumps({"to": {"session": self.session}, "method": name}).encode()
        start = time.monotonic()
        request = urllib.request.Request(admin + "publish", document, {"Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=10).read()
        while line := stream.readline():
            if name.encode() in line:
                return time.monotonic() - start
        return None

    def delete(self):
        response = self.request("DELETE")
        response.read()
        return response.status


main(*sys.argv[1:])
