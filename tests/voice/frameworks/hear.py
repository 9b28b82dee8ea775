"""Sends a recording to a gateway through a framework's own speech-to-text service, and prints each final.

It runs in a separate environment (``requirements.txt``), whose versions may differ from those of this project:

    python hear.py pipecat-openai 127.0.0.1:8080 sample.wav
"""

import asyncio
import sys
import wave
from collections.abc import AsyncIterator

CHUNK_S = 0.02
END_WAIT_S = 5.0
"""Silence after the recording, during which the last final arrives."""
KEY = "any"


async def audio_chunks(file: str) -> AsyncIterator[tuple[bytes, int]]:
    """Yield chunks of the recording in real time, each with the sample rate."""
    with wave.open(file) as recording:
        rate, step = recording.getframerate(), round(recording.getframerate() * CHUNK_S)
        audio = recording.readframes(recording.getnframes()) + bytes(2 * round(rate * END_WAIT_S))
    loop = asyncio.get_running_loop()
    begin = loop.time()
    for number in range(len(audio) // (2 * step)):
        await asyncio.sleep(begin + number * CHUNK_S - loop.time())
        yield audio[2 * step * number :][: 2 * step], rate


async def livekit(service: str, address: str, file: str) -> None:
    """Send through LiveKit's service."""
    import aiohttp  # noqa: PLC0415  the frameworks are large, and each run imports only one
    from livekit import rtc  # noqa: PLC0415
    from livekit.agents import stt, utils  # noqa: PLC0415
    from livekit.plugins import deepgram, openai  # noqa: PLC0415

    async with utils.http_context.open(), aiohttp.ClientSession() as http:
        if service == "openai":
            speech = openai.STT(base_url=f"http://{address}/v1", api_key=KEY, use_realtime=True, model="whisper-1")
        else:
            speech = deepgram.STT(base_url=f"http://{address}/v1/listen", api_key=KEY, http_session=http)
        stream = speech.stream()

        async def listen() -> None:
            async for event in stream:
                if event.type == stt.SpeechEventType.FINAL_TRANSCRIPT:
                    print(event.alternatives[0].text, flush=True)

        listening = asyncio.create_task(listen())
        async for piece, rate in audio_chunks(file):
            stream.push_frame(rtc.AudioFrame(piece, rate, 1, len(piece) // 2))
        listening.cancel()
        await stream.aclose()


async def pipecat(service: str, address: str, file: str) -> None:
    """Send through Pipecat's service."""
    from pipecat.frames.frames import EndFrame, Frame, InputAudioRawFrame, TranscriptionFrame  # noqa: PLC0415
    from pipecat.pipeline.pipeline import Pipeline  # noqa: PLC0415
    from pipecat.pipeline.runner import PipelineRunner  # noqa: PLC0415
    from pipecat.pipeline.task import PipelineParams, PipelineTask  # noqa: PLC0415
    from pipecat.processors.frame_processor import FrameDirection, FrameProcessor  # noqa: PLC0415
    from pipecat.services.deepgram.stt import DeepgramSTTService  # noqa: PLC0415
    from pipecat.services.openai.stt import OpenAIRealtimeSTTService  # noqa: PLC0415

    class Printer(FrameProcessor):
        """Prints finals."""

        async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
            await super().process_frame(frame, direction)
            if isinstance(frame, TranscriptionFrame):
                print(frame.text, flush=True)
            await self.push_frame(frame, direction)

    if service == "openai":
        speech = OpenAIRealtimeSTTService(
            api_key=KEY, base_url=f"ws://{address}/v1/realtime", turn_detection={"type": "server_vad"}
        )
    else:
        speech = DeepgramSTTService(api_key=KEY, base_url=f"ws://{address}")
    task = PipelineTask(Pipeline([speech, Printer()]), params=PipelineParams(audio_in_sample_rate=16_000))

    async def speak() -> None:
        async for piece, rate in audio_chunks(file):
            await task.queue_frame(InputAudioRawFrame(piece, rate, 1))
        await task.queue_frame(EndFrame())

    await asyncio.gather(PipelineRunner(handle_sigint=False).run(task), speak())


def main() -> None:
    framework, _, service = sys.argv[1].partition("-")
    asyncio.run({"livekit": livekit, "pipecat": pipecat}[framework](service, *sys.argv[2:]))


if __name__ == "__main__":
    main()
