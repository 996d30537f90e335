"""Python SDK, first major version. Usage: python sdk_v1.py URL"""

import asyncio
import sys
from contextlib import asynccontextmanager

from mcp.client.streamable_http import streamable_http_client

from scenario import run
from v1_adapter import V1Adapter


class Adapter(V1Adapter):
    name = "python-sdk-v1"

    @staticmethod
    @asynccontextmanager
    async def connect(url, handler):
        async with streamable_http_client(url) as (reader, writer, _session_id):
            async with V1Adapter.session(reader, writer, handler) as session:
                yield session


sys.exit(asyncio.run(run(Adapter, sys.argv[1])))
