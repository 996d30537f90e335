"""What both transports of the Python SDK's first major version share."""

from contextlib import asynccontextmanager

from mcp import ClientSession


class V1Adapter:
    @staticmethod
    @asynccontextmanager
    async def session(reader, writer, handler):
        async with ClientSession(reader, writer, message_handler=handler) as session:
            await session.initialize()
            yield session

    @staticmethod
    def is_error(result):
        return result.isError

    @staticmethod
    def input_schema(tool):
        return tool.inputSchema
