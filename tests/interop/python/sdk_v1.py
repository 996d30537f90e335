"""Python SDK, first major version. Usage: python sdk_v1.py URL"""

import asyncio
import sys
from contextlib import asynccontextmanager

from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

from scenario import run


class Adapter:
    name = "python-sdk-v1"

    @staticmethod
    @asynccontextmanager
    async def connect(url, handler):
        async with streamable_http_client(url) as (reader, writer, _session_id):
            async with ClientSession(reader, writer, message_handler=handler) as session:
                await session.initialize()
                yield session

    @staticmethod
    def is_error(result):
        return result.isError

    @staticmethod
    def input_schema(tool):
        return tool.inputSchema


sys.exit(asyncio.run(run(Adapter, sys.argv[1])))
