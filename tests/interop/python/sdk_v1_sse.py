"""Python SDK, first major version, over HTTP+SSE of 2024-11-05. Usage: python sdk_v1_sse.py URL"""

import asyncio
import sys
from contextlib import asynccontextmanager
from urllib.parse import urljoin

from mcp import ClientSession
from mcp.client.sse import sse_client

from scenario import run_carried


class Adapter:
    name = "python-sdk-v1-sse"

    @staticmethod
    @asynccontextmanager
    async def connect(url, handler):
        async with sse_client(url) as (reader, writer):
            async with ClientSession(reader, writer, message_handler=handler) as session:
                await session.initialize()
                yield session

    @staticmethod
    def is_error(result):
        return result.isError

    @staticmethod
    def input_schema(tool):
        return tool.inputSchema


sys.exit(asyncio.run(run_carried(Adapter, urljoin(sys.argv[1], "/sse"))))
