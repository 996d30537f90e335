"""Python SDK, first major version, over HTTP+SSE of 2024-11-05. Usage: python sdk_v1_sse.py URL"""

import asyncio
import sys
from contextlib import asynccontextmanager
from urllib.parse import urljoin

from mcp.client.sse import sse_client

from scenario import run_carried
from v1_adapter import V1Adapter


class Adapter(V1Adapter):
    name = "python-sdk-v1-sse"

    @staticmethod
    @asynccontextmanager
    async def connect(url, handler):
        async with sse_client(url) as (reader, writer):
            async with V1Adapter.session(reader, writer, handler) as session:
                yield session


sys.exit(asyncio.run(run_carried(Adapter, urljoin(sys.argv[1], "/sse"))))
