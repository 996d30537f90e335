"""Python SDK, second major version, held to the `initialize` handshake. Usage: python sdk_v2.py URL"""

import asyncio
import sys
from contextlib import asynccontextmanager

from mcp import Client

from scenario import run


class Adapter:
    name = "python-sdk-v2"

    @staticmethod
    @asynccontextmanager
    async def connect(url, handler):
        async with Client(url, mode="legacy", message_handler=handler) as client:
            yield client

    @staticmethod
    def is_error(result):
        return result.is_error

    @staticmethod
    def input_schema(tool):
        return tool.input_schema


sys.exit(asyncio.run(run(Adapter, sys.argv[1])))
