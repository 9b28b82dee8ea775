"""Converts callers' messages to frames for the pipeline, and rejects invalid messages.

Pipecat's serializers trust their clients. They create any frame that a client names, and raise arbitrary parser errors.
"""

from collections.abc import Callable

from pipecat.frames.frames import Frame, InputAudioRawFrame
from pipecat.frames.protobufs import frames_pb2
from pipecat.processors.frame_processor import FrameProcessorSetup
from pipecat.serializers.base_serializer import FrameSerializer
from pipecat.serializers.protobuf import ProtobufFrameSerializer

from voice_agent.speech_to_text import SAMPLE_RATE_HZ

SAMPLE_BYTES = 2


class MalformedMessageError(Exception):
    """A caller sent an invalid message, so the socket is closed."""


class ProtobufSerializer(ProtobufFrameSerializer):
    """A version of Pipecat's protobuf serializer that accepts only audio from callers.

    Text, transcripts and interruptions from callers are ignored, since only the agent creates them.
    """

    async def deserialize(self, data: str | bytes) -> Frame | None:
        """Return the audio of a message, or ``None`` for any other message.

        Raises:
            MalformedMessageError: The message is not audio that the pipeline can process.
        """
        if isinstance(data, str):
            raise MalformedMessageError("a message is binary, a frame of Pipecat's protobuf")
        frame = frames_pb2.Frame.FromString(data)  # type: ignore[attr-defined]
        if frame.WhichOneof("frame") != "audio":
            return None
        audio = frame.audio
        if (audio.sample_rate, audio.num_channels) != (SAMPLE_RATE_HZ, 1) or len(audio.audio) % SAMPLE_BYTES:
            raise MalformedMessageError(
                f"audio has {audio.sample_rate} Hz, {audio.num_channels} channels, {len(audio.audio)} bytes; "
                f"send PCM16 at {SAMPLE_RATE_HZ} Hz with one channel"
            )
        return InputAudioRawFrame(audio.audio, SAMPLE_RATE_HZ, 1)


class GuardedSerializer(FrameSerializer):
    """Wraps a protocol's serializer, so that any parse error closes the socket because of a malformed message.

    Args:
        on_malformed: Callback that is called before Pipecat's transport disconnects because of an invalid message.
    """

    def __init__(self, protocol: FrameSerializer, on_malformed: Callable[[], None]) -> None:
        super().__init__()
        self._protocol = protocol
        self._on_malformed = on_malformed

    async def setup(self, setup: FrameProcessorSetup) -> None:  # type: ignore[override]  # as Pipecat's own
        """Forward the pipeline's sample rates to the wrapped serializer."""
        await self._protocol.setup(setup)

    async def serialize(self, frame: Frame) -> str | bytes | None:
        """Convert a frame with the wrapped serializer."""
        return await self._protocol.serialize(frame)

    async def deserialize(self, data: str | bytes) -> Frame | None:
        """Return the frame for a message.

        Raises:
            MalformedMessageError: The message is invalid.
        """
        try:
            return await self._protocol.deserialize(data)
        except Exception as error:
            self._on_malformed()
            raise MalformedMessageError(f"a message cannot be read: {type(error).__name__}") from error
