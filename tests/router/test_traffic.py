"""Client traffic through the router to several services: uploads, WebSockets, streamed responses, and long bodies."""

import time

import httpx2
import pytest
import websockets.sync.client

from tests.router.conftest import Cluster, Front

BODY_MIB = 128


@pytest.fixture(autouse=True)
def two_services(cluster: Cluster, front: Front) -> None:
    for service in ("qwen", "speech"):
        cluster.add(service)
        front.finds(service, 1)


def test_services_are_distinguished_by_path(front: Front) -> None:
    for service in ("qwen", "speech"):
        answer = httpx2.post(f"{front.url}/{service}/v1/audio/speech", json={"model": "any"}).json()
        assert answer["engine"].startswith(service)
        assert answer["path"] == "/v1/audio/speech"


def test_an_upload_is_forwarded_completely(front: Front) -> None:
    files = {"file": ("a.wav", bytes(BODY_MIB << 20), "audio/wav")}
    answer = httpx2.post(f"{front.url}/qwen/v1/audio/transcriptions", files=files, data={"model": "m"}, timeout=120)
    assert answer.json()["bytes"] > BODY_MIB << 20


def test_a_websocket_stays_open(front: Front) -> None:
    with websockets.sync.client.connect(f"ws{front.url[4:]}/qwen/v1/realtime", proxy=None) as socket:
        for number in range(3):
            socket.send(f"hello {number}")
            assert str(socket.recv()).endswith(f"hello {number}")


def test_tokens_are_streamed_as_they_are_generated(front: Front) -> None:
    body = {"stream": True, "seconds": 3}
    arrived = []
    with httpx2.stream("POST", f"{front.url}/qwen/v1/chat/completions", json=body, timeout=60) as answer:
        arrived = [time.monotonic() for line in answer.iter_lines() if line.startswith("data")]
    assert len(arrived) == 5
    assert arrived[-1] - arrived[0] > 1.5
