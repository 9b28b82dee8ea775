"""Close codes of callers' sockets."""

import pytest
from starlette.types import Message

from voice_agent import connections
from voice_agent.connections import CloseReason, Socket


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        (None, 1000),
        (connections.MALFORMED, 1007),
        (connections.REFUSED, 1008),
        (connections.TRY_AGAIN_LATER, 1013),
    ],
)
async def test_a_socket_is_closed_with_the_code_of_its_conversation(ending: CloseReason | None, code: int) -> None:
    """Pipecat's transport closes each one with 1000."""
    messages: list[Message] = [{"type": "websocket.connect"}]
    sent: list[Message] = []

    async def receive() -> Message:
        return messages.pop()

    async def send(message: Message) -> None:
        sent.append(message)

    socket = Socket({"type": "websocket"}, receive, send)
    await socket.accept()
    if ending:
        socket.ending = ending
    await socket.close(code=1000)
    assert (sent[-1]["type"], sent[-1]["code"]) == ("websocket.close", code)
    assert sent[-1]["reason"]
