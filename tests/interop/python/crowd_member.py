"""The Python SDK's part of a crowd: clients of both eras that listen at one URL. Usage: python crowd_member.py URL COUNT

Says `ready` once all of them listen. Told `report`, prints what each has heard, in order; leaves when its input ends.
"""

import asyncio
import json
import os
import sys
from contextlib import AsyncExitStack

from mcp import Client

METHODS = {
    f"{kind}ListChanged": f"notifications/{kind.lower()}/list_changed" for kind in ["Tools", "Prompts", "Resources"]
}


async def run(url, count):
    heard = {"modern": [], "legacy": []}
    async with AsyncExitStack() as stack:
        tasks = []
        for _ in range(count):
            for join in [join_modern, join_legacy]:
                era, methods, client = await join(stack, url, tasks)
                heard[era].append(methods)
                tasks.append(asyncio.create_task(keep_calling(client)))
        print("ready", flush=True)
        while await asyncio.to_thread(sys.stdin.readline) == "report\n":
            assert not any(task.done() for task in tasks), "a client has stopped"
            print(json.dumps(heard), flush=True)
        # Leaving in order takes as long as each stream's keep-alive: the server copes with clients that do not.
        os._exit(0)


async def join_modern(stack, url, tasks):
    methods = []
    client = await stack.enter_async_context(Client(url, mode="2026-07-28"))
    wanted = {"tools_list_changed": True, "prompts_list_changed": True, "resources_list_changed": True}
    subscription = await stack.enter_async_context(client.listen(**wanted))

    async def listen():
        async for event in subscription:
            methods.append(METHODS[type(event).__name__])

    tasks.append(asyncio.create_task(listen()))
    return "modern", methods, client


async def join_legacy(stack, url, _tasks):
    methods = []

    async def note(message):
        notification = getattr(message, "root", message)
        if method := getattr(notification, "method", None):
            methods.append(method)

    client = await stack.enter_async_context(Client(url, mode="legacy", message_handler=note))
    return "legacy", methods, client


async def keep_calling(client):
    while True:
        await client.call_tool("echo", {"message": "between"})
        await asyncio.sleep(0.5)


asyncio.run(run(sys.argv[1], int(sys.argv[2])))
