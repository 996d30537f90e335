"""An MCP server over standard input and output that behaves as badly as its tools are asked to.

Nothing but the standard library. Each call runs on a thread of its own, so that calls overlap.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time

OUT = threading.Lock()
STATE = {"value": None, "calls": 0}
CANCELLED, NOTIFIED, SUBSCRIBED, LEVELS, PROGRESS = [], [], [], [], []
# The ids of its calls, by tool.
CALLED = {}
ANSWERS, NEXT = {}, [0]


def write(text):
    with OUT:
        sys.stdout.write(text)
        sys.stdout.flush()


def send(message):
    write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")


def note(method, params=None):
    send({"method": method, **({"params": params} if params is not None else {})})


def ask(method, params):
    """A request to the client; its answer as a whole message."""
    with OUT:
        NEXT[0] += 1
        number = f"ask-{NEXT[0]}"
    ANSWERS[number] = [threading.Event(), None]
    send({"id": number, "method": method, "params": params})
    ANSWERS[number][0].wait()
    return ANSWERS.pop(number)[1]


def result_or_error(answer):
    return answer.get("result", answer.get("error"))


def slow(arguments, meta):
    steps = arguments.get("steps", 1)
    for step in range(steps):
        time.sleep(arguments["seconds"] / steps)
        if "progressToken" in meta:
            note("notifications/progress", {"progress": step + 1, "progressToken": meta["progressToken"]})
    return "done"


def flood(arguments, _meta):
    text = "x" * arguments.get("bytes", 1000)
    for number in range(arguments["count"]):
        note("notifications/message", {"level": "info", "data": f"{number} {text}"})
    return "flooded"


def garbage(_arguments, _meta):
    write('Server is listening!\n{"jsonrpc": "2.0", "id": \n[]\n{"jsonrpc":"1.0","id":1,"result":{}}\n\xff\n\n')
    write('{"jsonrpc":"2.0","id":987654,"result":{}}\n')
    return "after the garbage"


def long_line(arguments, _meta):
    write("y" * arguments["bytes"] + "\n")
    return "after the long line"


def grandchild(_arguments, _meta):
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)"
    return subprocess.Popen([sys.executable, "-c", code]).pid


def stay(_arguments, _meta):
    """Neither the end of the input nor TERM will end this process."""
    STATE["stays"] = True
    return "staying"


def complain(arguments, _meta):
    for number in range(arguments["count"]):
        print(f"complaint {number}\x1b[31m", file=sys.stderr, flush=True)
    return "complained"


TOOLS = {
    "echo": lambda arguments, _: arguments["text"],
    "pid": lambda *_: os.getpid(),
    "meta": lambda _, meta: meta,
    "output": lambda *_: "[1]",
    "listened": lambda *_: sorted(uri for wanted in LISTENING.values() for uri in wanted.get("resourceSubscriptions", [])),
    "get": lambda *_: STATE["value"],
    "set": lambda arguments, _: STATE.update(value=arguments["value"]),
    "slow": slow,
    "sample": lambda arguments, _: result_or_error(ask("sampling/createMessage", {"messages": [], "maxTokens": 1, **arguments})),
    "elicit": lambda *_: result_or_error(ask("elicitation/create", {"message": "Who?", "requestedSchema": {}})),
    "roots": lambda *_: result_or_error(ask("roots/list", {})),
    "unknown": lambda *_: result_or_error(ask("no/such", {})),
    "ping": lambda *_: result_or_error(ask("ping", {})),
    "log": lambda arguments, _: note("notifications/message", arguments),
    "later": lambda arguments, _: threading.Timer(arguments["seconds"], note, [arguments["method"], arguments["params"]]).start(),
    "note": lambda arguments, _: note(arguments["method"], arguments.get("params")),
    "hang": lambda *_: time.sleep(1000),
    "crash": lambda *_: os._exit(3),
    "close": lambda *_: os.close(1),
    "garbage": garbage,
    "long": long_line,
    "flood": flood,
    "complain": complain,
    "deaf": lambda *_: STATE.update(deaf=True),
    "stay": stay,
    "grandchild": grandchild,
    "seen": lambda *_: {
        "cancelled": CANCELLED, "notified": NOTIFIED, "subscribed": SUBSCRIBED, "levels": LEVELS, "called": CALLED,
        "progress": PROGRESS,
    },
    "environment": lambda *_: {"variables": dict(os.environ), "directory": os.getcwd(), "arguments": sys.argv[1:]},
}


CLAIM = "io.modelcontextprotocol/protocolVersion"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


def is_newer():
    """Whether this is a server of 2026-07-28: always, or as long as there is a certain file."""
    file = os.environ.get("CHILD_NEWER_FILE")
    return os.environ.get("CHILD_ERA") == "2026" or file is not None and os.path.exists(file)


IS_NEWER = is_newer()
# What every result of such a server has.
STAMP = {"resultType": "complete", "ttlMs": 5, "cacheScope": "public"} if IS_NEWER else {}


def read(params):
    if params["uri"] == "missing://" and IS_NEWER:
        return {"error": {"code": -32602, "message": "Resource not found", "data": {"uri": params["uri"]}}}
    if params["uri"] == "missing://":
        return {"error": {"code": -32002, "message": "Resource not found", "data": {"uri": params["uri"]}}}
    return {"result": {**STAMP, "contents": [{"uri": params["uri"], "text": "read"}]}}


def tool(name):
    output = {"outputSchema": {"type": "array"}} if name == "output" else {}
    return {"name": name, "inputSchema": {"type": "object"}, **output}


# What is answered with the same each time.
PAGES = {
    "tools/list": lambda _: {"result": {**STAMP, "tools": [tool(name) for name in TOOLS]}},
    "prompts/get": lambda _: {"result": {**STAMP, "messages": []}},
    "resources/read": read,
    "completion/complete": lambda _: {"result": {**STAMP, "completion": {"values": ["a"]}}},
}


# What it is listened to for, by the id of the request.
LISTENING = {}


def question(method, params):
    return {"method": method, "params": params}


ROUNDS = {
    "ask": {"q": question("elicitation/create", {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}})},
    "ask_both": {
        "who": question("elicitation/create", {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}),
        "what": question("sampling/createMessage", {"messages": [], "maxTokens": 1}),
    },
    "ask_there": {"q": question("elicitation/create", {"mode": "url", "message": "There?", "url": "https://a.example/"})},
    "ask_oddly": {"odd": question("no/such", {})},
    "ask_nothing": {},
}


def heard(kind, uri=None):
    """Tells all who listen."""
    for number, wanted in list(LISTENING.items()):
        meta = {"_meta": {SUBSCRIPTION: number}}
        if uri is None and wanted.get(kind):
            note("notifications/tools/list_changed", meta)
        elif uri in wanted.get("resourceSubscriptions", []):
            note("notifications/resources/updated", {"uri": uri, **meta})


def rounds(message):
    """The next round of a call that asks. None if it is answered."""
    params = message["params"]
    if params["name"] == "ask_for_ever" or params.get("requestState") != "mine":
        inputs = ROUNDS.get(params["name"], {})
        result = {"resultType": "input_required", "inputRequests": inputs, "requestState": "mine"}
        return send({"id": message["id"], "result": result})
    answers = params.get("inputResponses")
    text = answers["q"]["content"]["name"] if params["name"] == "ask" else json.dumps(answers)
    params.update(name="echo", arguments={"text": text})
    return message


def newer(message):
    """A message as a server of 2026-07-28 takes it. None if it is answered."""
    method, params = message["method"], message.get("params", {})
    if params.get("_meta", {}).get(CLAIM) != "2026-07-28":
        error = {"code": -32601 if method == "initialize" else -32602, "message": f"no claim in {method}"}
        return send({"id": message["id"], "error": error})
    if method == "server/discover":
        capabilities = {"tools": {"listChanged": True}, "resources": {"subscribe": True}, "logging": {}}
        result = {"supportedVersions": ["2026-07-28"], "capabilities": capabilities, "ttlMs": 5, "cacheScope": "public"}
        meta = {"io.modelcontextprotocol/serverInfo": {"name": "newer child", "version": "1"}}
        return send({"id": message["id"], "result": {"resultType": "complete", "_meta": meta, **result}})
    if method == "subscriptions/listen":
        wanted = params["notifications"]
        uris = [uri for uri in wanted.get("resourceSubscriptions", []) if not uri.startswith("secret:")]
        LISTENING[message["id"]] = {**wanted, "resourceSubscriptions": uris}
        meta = {SUBSCRIPTION: message["id"]}
        return note("notifications/subscriptions/acknowledged", {"_meta": meta, "notifications": LISTENING[message["id"]]})
    if params.get("name", "").startswith("ask"):
        return rounds(message)
    if params.get("name") == "change":
        heard("toolsListChanged")
        params["name"] = "pid"
    if params.get("name") == "update":
        heard("resourceSubscriptions", params["arguments"]["uri"])
        params["name"] = "pid"
    return message


def call(request):
    params = request.get("params", {})
    try:
        value = TOOLS[params["name"]](params.get("arguments", {}), params.get("_meta", {}))
        content = [{"type": "text", "text": value if isinstance(value, str) else json.dumps(value)}]
        kind = {"resultType": "complete"} if IS_NEWER else {}
        if params["name"] == "output":
            kind["structuredContent"] = [1]
        send({"id": request["id"], "result": {**kind, "content": content, "_meta": params.get("_meta", {})}})
    except KeyError as error:
        send({"id": request["id"], "error": {"code": -32602, "message": f"missing {error}", "data": [1.0]}})


def greeting(params):
    capabilities = {"tools": {"listChanged": True}, "logging": {}, "resources": {"subscribe": True}}
    revision = os.environ.get("CHILD_REVISION", params["protocolVersion"])
    info = {"name": "child", "version": params["protocolVersion"]}
    return {"protocolVersion": revision, "capabilities": capabilities, "serverInfo": info, "instructions": "Be kind."}


def handle(message):
    method = message.get("method")
    if IS_NEWER and "id" in message and newer(message) is None:
        return
    if method is None:
        waiting = ANSWERS.get(message["id"])
        if waiting:
            waiting[1] = message
            waiting[0].set()
    elif "id" not in message:
        NOTIFIED.append(method)
        if method == "notifications/cancelled":
            if LISTENING.pop(message["params"]["requestId"], None) is None:
                CANCELLED.append(message["params"]["requestId"])
        if method == "notifications/progress":
            PROGRESS.append(message["params"])
    elif method == "initialize":
        if "CHILD_REFUSES" in os.environ:
            send({"id": message["id"], "error": {"code": -32001, "message": "not today"}})
        elif "CHILD_SILENT" not in os.environ:
            send({"id": message["id"], "result": greeting(message["params"])})
    elif method == "tools/call":
        CALLED.setdefault(message["params"]["name"], []).append(message["id"])
        threading.Thread(target=call, args=[message], daemon=True).start()
    elif method in ("resources/subscribe", "resources/unsubscribe"):
        SUBSCRIBED.append(f"{method} {message['params']['uri']}")
        send({"id": message["id"], "result": {}})
    elif method in PAGES:
        send({"id": message["id"], **PAGES[method](message.get("params", {}))})
    elif method == "logging/setLevel":
        LEVELS.append(message["params"]["level"])
        send({"id": message["id"], "result": {}})
    else:
        send({"id": message["id"], "error": {"code": -32601, "message": "no such method"}})


def main():
    signal.signal(signal.SIGTERM, lambda *_: None if STATE.get("stays") else os._exit(0))
    if "CHILD_DIES" in os.environ:
        sys.exit("cannot start today")
    for line in sys.stdin:
        if STATE.get("deaf"):
            time.sleep(1000)
        handle(json.loads(line))
    while STATE.get("stays"):
        time.sleep(1000)
    os._exit(0)


main()
