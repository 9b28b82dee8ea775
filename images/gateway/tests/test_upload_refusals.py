"""A refused upload: its client can read the answer after it has sent everything."""

import asyncio

import pytest

from images.conftest import BUSY_TIMEOUT_S
from images.gateway.tests.conftest import Start
from images.gateway.tests.test_transcriptions import TRANSCRIPTIONS

pytestmark = pytest.mark.usefixtures("hosts")


async def test_the_response_follows_the_request_body(start: Start) -> None:
    gateway = await start(AUTHORIZER="iam").ready()
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.media_port)
    head = f"POST {TRANSCRIPTIONS} HTTP/1.1\r\nHost: gateway\r\nContent-Length: 2000\r\n\r\n".encode()
    writer.write(head + bytes(1000))
    answer = asyncio.create_task(reader.readline())
    done, _ = await asyncio.wait({answer}, timeout=1)
    assert not done
    writer.write(bytes(1000))
    async with asyncio.timeout(BUSY_TIMEOUT_S):
        assert b" 401 " in await answer
    writer.close()
