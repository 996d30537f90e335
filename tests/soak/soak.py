#!/usr/bin/env python3
"""Mixed load with random kills of clients, for as long as you like; every message is accounted for.

Each session has a listener that resumes with its cursor after every cut, and callers whose POSTs are cut and
resumed as well. Cuts are resets or closes at random moments. At the end, per session: every message that was sent
to its listener arrived exactly once and in order, every call was answered exactly once, and the server's memory is
where it was.

    tests/soak/soak.py --binary target/release/moorline --minutes 60 --sessions 200

Only the Python standard library is used. Exit code 0: all accounted for.
"""
import argparse, asyncio, json, os, random, re, socket, struct, subprocess, sys, time

ACCEPT = "application/json, text/event-stream"


class Cut(Exception):
    """The connection is gone."""


class Wire:
    """One connection: requests out, one response in, read byte by byte as events."""

    def __init__(self, port):
        self.port, self.reader, self.writer = port, None, None

    async def open(self):
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)

    async def request(self, method, session=None, body=None, cursor=None):
        lines = [f"{method} /mcp HTTP/1.1", "Host: localhost", f"Accept: {ACCEPT}"]
        if session:
            lines.append(f"Mcp-Session-Id: {session}")
        if cursor:
            lines.append(f"Last-Event-ID: {cursor}")
        data = b"" if body is None else json.dumps(body).encode()
        if body is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {len(data)}"]
        self.writer.write(("\r\n".join(lines) + "\r\n\r\n").encode() + data)
        head = await self.until(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        fields = {}
        for line in head.decode().split("\r\n")[1:]:
            if ":" in line:
                name, value = line.split(":", 1)
                fields[name.lower()] = value.strip()
        return status, fields

    async def until(self, mark):
        try:
            return await self.reader.readuntil(mark)
        except (asyncio.IncompleteReadError, OSError) as error:
            raise Cut from error

    async def exactly(self, count):
        try:
            return await self.reader.readexactly(count)
        except (asyncio.IncompleteReadError, OSError) as error:
            raise Cut from error

    async def body(self, fields):
        if fields.get("transfer-encoding") == "chunked":
            return b"".join([chunk async for chunk in self.chunks()])
        return await self.exactly(int(fields.get("content-length", 0)))

    async def chunks(self):
        while True:
            size = int(await self.until(b"\r\n"), 16)
            chunk = (await self.exactly(size + 2))[:-2]
            if size == 0:
                return
            yield chunk

    async def events(self):
        rest = ""
        async for chunk in self.chunks():
            rest += chunk.decode()
            while "\n\n" in rest:
                block, rest = rest.split("\n\n", 1)
                yield dict(line.split(": ", 1) if ": " in line else (line.rstrip(":"), "") for line in block.split("\n"))

    def cut(self):
        """A reset or a close, at once."""
        if random.random() < 0.5:
            linger = struct.pack("ii", 1, 0)
            self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.writer.transport.abort() if random.random() < 0.7 else self.writer.close()


class Session:
    def __init__(self, port, stats):
        self.port, self.stats = port, stats
        self.id, self.next_id = None, 10
        self.sent, self.heard, self.cursor = 0, [], None
        self.stopping = False

    async def start(self):
        wire = Wire(self.port)
        await wire.open()
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "soak", "version": "1"}}
        status, fields = await wire.request("POST", body={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
        await wire.body(fields)
        assert status == 200, status
        self.id = fields["mcp-session-id"]
        status, fields = await wire.request("POST", self.id, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert status == 202, status
        wire.cut()

    async def listen(self):
        """Holds a listener and resumes it after each of its own cuts."""
        while True:
            wire = Wire(self.port)
            try:
                await wire.open()
                status, _ = await wire.request("GET", self.id, cursor=self.cursor)
                assert status == 200, status
                self.stats["gets"] += 1
                lifetime = random.expovariate(1 / 20)
                await asyncio.wait_for(self.hear(wire), lifetime)
            except asyncio.TimeoutError:
                self.stats["listener cuts"] += 1
            except (Cut, OSError):
                self.stats["cut by the server"] += 1
            finally:
                if wire.writer:
                    wire.cut()
            await asyncio.sleep(random.random() * 0.2)

    async def hear(self, wire):
        async for event in wire.events():
            if event.get("id"):
                self.cursor = event["id"]
            if event.get("event") == "message":
                self.heard.append(event["id"])
        raise Cut

    async def act(self):
        """Sends messages to the listener and makes calls, some of which are cut and resumed."""
        while not self.stopping:
            await asyncio.sleep(random.expovariate(1.0))
            if random.random() < 0.6:
                await self.call("notify", {"kind": "message", "scope": "session"}, cut=False)
                self.sent += 1
            else:
                await self.call("slow", {"seconds": random.choice([0, 0.2, 0.5]), "steps": random.randint(1, 5)}, cut=True)

    async def call(self, tool, arguments, cut):
        self.next_id += 1
        wanted = self.next_id
        params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": wanted}}
        body = {"jsonrpc": "2.0", "id": wanted, "method": "tools/call", "params": params}
        answers, cursor = [], None
        wire = Wire(self.port)
        await wire.open()
        status, fields = await wire.request("POST", self.id, body)
        self.stats["calls"] += 1
        while not answers:
            assert status == 200, (status, tool)
            if fields.get("content-type") == "application/json":
                answers.append(json.loads(await wire.body(fields))["id"])
                break
            patience = random.random() if cut and random.random() < 0.7 else 60
            try:
                cursor = await asyncio.wait_for(self.answer(wire, cursor, answers), patience)
            except asyncio.TimeoutError:
                cursor = self.last_seen
                self.stats["call cuts"] += 1
            if answers:
                break
            wire.cut()
            wire = Wire(self.port)
            await wire.open()
            assert cursor, "a cut call was primed first"
            status, fields = await wire.request("GET", self.id, cursor=cursor)
        assert answers == [wanted], (answers, wanted)
        wire.cut()

    async def answer(self, wire, cursor, answers):
        self.last_seen = cursor
        async for event in wire.events():
            if event.get("id"):
                self.last_seen = cursor = event["id"]
            if event.get("event") == "message":
                message = json.loads(event["data"])
                if "id" in message:
                    answers.append(message["id"])
        return cursor

    def account(self):
        """What went wrong, in words; nothing if all is well."""
        if len(set(self.heard)) != len(self.heard):
            return "an event came twice"
        if len(self.heard) != self.sent:
            return f"{self.sent} messages sent, {len(self.heard)} heard"
        return None


def memory_kib(pid):
    with open(f"/proc/{pid}/status") as status:
        return int(re.search(r"RssAnon:\s+(\d+)", status.read()).group(1))


async def soak(arguments):
    server = subprocess.Popen(
        [arguments.binary, "--listen", "127.0.0.1:0", "--shards", str(arguments.shards)], stderr=subprocess.PIPE, text=True)
    port = int(re.search(r":(\d+)/", server.stderr.readline()).group(1))
    stats = dict.fromkeys(["calls", "gets", "listener cuts", "call cuts", "cut by the server"], 0)
    sessions = [Session(port, stats) for _ in range(arguments.sessions)]
    tasks = []
    failed = []
    try:
        for session in sessions:
            await session.start()
        for session in sessions:
            tasks.append((asyncio.create_task(session.act()), session))
            tasks.append((asyncio.create_task(session.listen()), session))
        end = time.monotonic() + arguments.minutes * 60
        samples = []
        while time.monotonic() < end:
            await asyncio.sleep(min(30, max(0.1, end - time.monotonic())))
            samples.append(memory_kib(server.pid))
            print(f"{time.strftime('%H:%M:%S')} sent {sum(s.sent for s in sessions)} heard {sum(len(s.heard) for s in sessions)}"
                  f" anonymous {samples[-1]} KiB {stats}", flush=True)
            failed += [repr(task.exception()) for task, _ in tasks if task.done() and task.exception()]
            if failed:
                break
        actors = [task for task, _ in tasks[::2]]
        for session in sessions:
            session.stopping = True
        await asyncio.gather(*actors, return_exceptions=True)
        # What is still on its way to a listener arrives with its next resumption.
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and any(session.account() for session in sessions):
            await asyncio.sleep(0.5)
        failed += [problem for problem in (session.account() for session in sessions) if problem]
        third = max(1, len(samples) // 3)
        print(f"memory: first third {max(samples[:third])} KiB at most, last third {max(samples[-third:])} KiB at most")
        print(f"sent {sum(s.sent for s in sessions)}, heard {sum(len(s.heard) for s in sessions)}, {stats}")
        print(f"{len(failed)} faults: {failed[:5]}")
        return 1 if failed else 0
    finally:
        for task, _ in tasks:
            task.cancel()
        server.terminate()
        server.wait(30)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="target/release/moorline")
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--sessions", type=int, default=100)
    parser.add_argument("--shards", type=int, default=2)
    sys.exit(asyncio.run(soak(parser.parse_args())))


if __name__ == "__main__":
    main()
