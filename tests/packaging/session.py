"""session.py BINARY: starts the server with a program behind it and makes one call."""

import json
import re
import signal
import subprocess
import sys
import urllib.request

ECHO = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message: continue
    result = {"echoed": message["method"]}
    if message["method"] == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "e", "version": "1"}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""

server = subprocess.Popen(
    [sys.argv[1], "serve", "--listen", "127.0.0.1:0", "--", "/usr/bin/python3", "-c", ECHO],
    stderr=subprocess.PIPE, text=True)
try:
    url = re.search(r"http://\S+", server.stderr.readline()).group()
    fields = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}

    def post(message):
        request = urllib.request.Request(url, json.dumps(message).encode(), fields)
        return urllib.request.urlopen(request, timeout=20)

    greeting = post({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}})
    fields |= {"Mcp-Session-Id": greeting.headers["Mcp-Session-Id"], "MCP-Protocol-Version": "2025-11-25"}
    reply = post({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}).read().decode()
    assert "tools/list" in reply, reply
finally:
    server.send_signal(signal.SIGTERM)
    code = server.wait(20)
assert code == 0, code
