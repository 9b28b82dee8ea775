"""Runs a conversation: transport, transcription, turns, language model, speech synthesis and history."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial

import httpx2
from pipecat.adapters.llm.schemas.tools_schema import ToolsSchema
from pipecat.frames.frames import ErrorFrame, LLMRunFrame, OutputTransportMessageUrgentFrame
from pipecat.observers.user_bot_latency_observer import LatencyBreakdown, MeasuredFrom, UserBotLatencyObserver
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker, ProcessorUnusablePolicy
from pipecat.processors.aggregators.llm_context import LLMContext, LLMContextMessage
from pipecat.processors.aggregators.llm_response_universal import (
    AssistantTurnStoppedMessage,
    LLMAssistantAggregator,
    LLMContextAggregatorPair,
    LLMUserAggregator,
    LLMUserAggregatorParams,
    UserTurnStoppedMessage,
)
from pipecat.transports.websocket.fastapi import FastAPIWebsocketParams
from pipecat.turns.user_start import VADUserTurnStartStrategy
from pipecat.turns.user_stop import TurnAnalyzerUserTurnStopStrategy
from pipecat.turns.user_turn_strategies import UserTurnStrategies
from pipecat.utils.types import NotGiven
from pipecat.workers.runner import WorkerRunner
from redis.exceptions import RedisError

from voice_agent.chat import Chat, ListeningChat
from voice_agent.connections import MALFORMED, CallerConnection, Close, Json
from voice_agent.early_answers import EarlyAnswers
from voice_agent.interruptions import Interruptions
from voice_agent.memory import LEASE_S, LostLeaseError, Memory, Message, Role
from voice_agent.messages import Guarded
from voice_agent.metrics import Metrics
from voice_agent.models import Models
from voice_agent.playback import Playback, Transport
from voice_agent.settings import AgentSettings
from voice_agent.speech_synthesis import SpeechSynthesisService
from voice_agent.speech_to_text import RATE, GatewaySTTService, Presence
from voice_agent.tools import Tools
from voice_agent.trace import Trace
from voice_agent.turns import Turns
from voice_agent.usage import Usage

SPOKEN_RATE = 24000
"""Sample rate of the audio that callers receive, Hz."""

LAST_TURN_S = 20.0
"""Maximum duration of a last turn before a caller is asked to reconnect to another agent."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Engines:
    """The engines of a conversation, except the two turn models.

    Attributes:
        speech_to_text: Speech to text, or only the caller's session if the language model accepts audio.
    """

    client: httpx2.AsyncClient
    trace: Trace
    speech_to_text: GatewaySTTService | Presence
    tools: Tools
    known_tools: ToolsSchema | NotGiven
    usage: Usage


IDLE = Close(1000, "nobody has said anything for a while")
CONVERSATION_TAKEN = Close(1008, "another connection has this conversation")
RESTART = Close(1012, "this agent is stopping; connect again with the conversation's token")
BROKEN = Close(1013, "an engine fails; connect again with the conversation's token")


def _as_pipecat(message: Message) -> LLMContextMessage:
    if message["role"] == "user":
        return {"role": "user", "content": message["content"]}
    return {"role": "assistant", "content": message["content"]}


async def _queue_messages(worker: PipelineWorker, messages: Iterable[Json]) -> None:
    for message in messages:
        await worker.queue_frame(OutputTransportMessageUrgentFrame(message=message))


class Conversation:
    """A conversation with a caller, from the acceptance of the socket to the end of the conversation."""

    def __init__(
        self, settings: AgentSettings, models: Models, metrics: Metrics, memory: Memory, engines: Engines
    ) -> None:
        self._settings = settings
        self._models = models
        self._metrics = metrics
        self._memory = memory
        self._engines = engines
        self._turns = Turns()

    async def run(self, entrance: CallerConnection, leaving: Callable[[], Awaitable[None]]) -> None:
        """Run the conversation until the caller or the agent ends it.

        Args:
            wait_for_stop: Function that returns when the conversation has to end after its current turn.

        Raises:
            RedisError: The store does not respond.
        """
        engines, history = self._engines, await self._memory.take()
        worker = self._worker(entrance, history)

        async def end(close: Close) -> None:
            entrance.socket.ending = close
            await worker.cancel(reason=close.reason)

        async def keep_alive() -> None:
            try:
                while True:
                    await asyncio.sleep(LEASE_S / 2)
                    with contextlib.suppress(RedisError):  # the store recovers, or the lease expires
                        await self._memory.renew()
            except LostLeaseError:
                await end(CONVERSATION_TAKEN)

        async def wait_for_departure() -> None:
            await leaving()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._turns.ended.wait(), LAST_TURN_S)
            await end(RESTART)

        async def wait_for_end(presence: Presence) -> None:
            await presence.handle_disconnect()
            await end(BROKEN)

        present = [wait_for_end(engines.speech_to_text)] if isinstance(engines.speech_to_text, Presence) else []
        side_tasks = [asyncio.create_task(each) for each in (keep_alive(), wait_for_departure(), *present)]
        runner = WorkerRunner(handle_sigint=False)
        try:
            await runner.add_workers(worker)
            await runner.run()
        finally:
            for task in side_tasks:
                task.cancel()
            with contextlib.suppress(RedisError):
                await self._memory.release()
            engines.trace.end()
            log.info("conversation ended", extra={"fields": {"code": entrance.socket.ending.code}})

    def _worker(self, entrance: CallerConnection, history: list[Message]) -> PipelineWorker:
        settings, engines, vad = self._settings, self._engines, self._models.vad()
        playback = Playback()
        transport = Transport(
            entrance.socket,
            FastAPIWebsocketParams(
                audio_in_enabled=True,
                audio_out_enabled=True,
                serializer=Guarded(entrance.serializer, partial(setattr, entrance.socket, "ending", MALFORMED)),
                allowed_origins=[],
            ),
            playback,
        )
        messages = [_as_pipecat(message) for message in history]
        context = LLMContext(messages, tools=engines.known_tools)
        stt_processors = [engines.speech_to_text] if isinstance(engines.speech_to_text, GatewaySTTService) else []
        chat_arguments = settings, engines.trace, self._metrics.count_tokens, engines.usage
        chat = Chat(*chat_arguments) if stt_processors else ListeningChat(*chat_arguments, context)
        engines.tools.join(chat)
        speaking = SpeechSynthesisService(settings, engines.client, engines.trace, engines.usage)
        turn = self._models.turn()
        if stt_processors:
            turns = UserTurnStrategies(
                start=[
                    Interruptions(
                        playback,
                        lambda: not self._turns.ended.is_set(),
                        lambda: speaking.answer,
                        self._metrics.interrupted,
                    )
                ],
                stop=[EarlyAnswers(turn, vad, stt_processors[0])],
            )
        else:  # no transcript distinguishes an interruption from a cough
            turns = UserTurnStrategies(
                start=[VADUserTurnStartStrategy()], stop=[TurnAnalyzerUserTurnStopStrategy(turn_analyzer=turn)]
            )
        caller, agent = LLMContextAggregatorPair(
            context,
            user_params=LLMUserAggregatorParams(
                user_turn_strategies=turns,
                user_turn_stop_timeout=settings.unheard_within_s,
                vad_analyzer=vad,
                empty_user_turn=None,
            ),
        )
        latency = UserBotLatencyObserver()
        worker = PipelineWorker(
            Pipeline([transport.input(), *stt_processors, caller, chat, speaking, transport.output(), agent]),
            params=PipelineParams(audio_in_sample_rate=RATE, audio_out_sample_rate=SPOKEN_RATE, enable_metrics=True),
            enable_rtvi=False,
            idle_timeout_secs=settings.idle_timeout_s,
            observers=[latency, self._turns, *([] if stt_processors else [self._metrics.barge_in()])],
            processor_unusable_policy=ProcessorUnusablePolicy.CANCEL,
        )
        self._follow_turns(worker, entrance, caller, agent)
        if isinstance(chat, ListeningChat):
            self._follow_words(worker, entrance, chat)
        self._follow_faults(worker, entrance)

        @transport.event_handler("on_client_connected")
        async def connected(*_: object) -> None:
            if history and history[-1]["role"] == "user":
                self._turns.begin()
                await worker.queue_frame(LLMRunFrame())  # no answer to the last message has been played

        @transport.event_handler("on_client_disconnected")
        async def on_disconnect(*_: object) -> None:
            await worker.cancel(reason="the caller has gone")

        @latency.event_handler("on_latency_breakdown")
        async def answered(_: object, breakdown: LatencyBreakdown) -> None:
            if breakdown.measured_from is MeasuredFrom.USER_SILENCE:
                self._metrics.turn(breakdown)
                engines.trace.turn(breakdown)

        return worker

    def _follow_turns(
        self,
        worker: PipelineWorker,
        entrance: CallerConnection,
        caller: LLMUserAggregator,
        agent: LLMAssistantAggregator,
    ) -> None:
        """Record the words of both sides, and detect when neither side speaks or waits for an answer."""

        @self._turns.event_handler("on_silent")
        async def silent(*_: object) -> None:
            await _queue_messages(worker, entrance.silent())

        @caller.event_handler("on_user_turn_started")
        async def on_speech_start(*_: object) -> None:
            self._turns.begin()

        @caller.event_handler("on_user_turn_stopped")
        async def on_user_turn(_aggregator: object, _strategy: object, message: UserTurnStoppedMessage) -> None:
            if message.content:
                await self._record_question(worker, entrance, message.content)
            elif isinstance(
                self._engines.speech_to_text, GatewaySTTService
            ):  # otherwise the language model reports its transcript
                self._turns.end()

        @agent.event_handler("on_assistant_turn_stopped")
        async def on_assistant_turn(_aggregator: object, message: AssistantTurnStoppedMessage) -> None:
            await _queue_messages(worker, entrance.answered(message.content))
            await self._remember(worker, entrance, "assistant", message.content)
            # Without text, it has called a tool, and continues.
            if message.content and not message.interrupted:
                self._turns.end()

    def _follow_words(self, worker: PipelineWorker, entrance: CallerConnection, chat: ListeningChat) -> None:
        """Record the questions that the language model transcribes."""

        @chat.event_handler("on_heard")
        async def on_transcript(_: object, text: str) -> None:
            await self._record_question(worker, entrance, text)

    async def _record_question(self, worker: PipelineWorker, entrance: CallerConnection, text: str) -> None:
        await _queue_messages(worker, entrance.question_messages(text))
        await self._remember(worker, entrance, "user", text)

    def _follow_faults(self, worker: PipelineWorker, entrance: CallerConnection) -> None:
        """Log the errors that end a conversation."""

        @worker.event_handler("on_idle_timeout")
        async def idle(*_: object) -> None:
            entrance.socket.ending = IDLE

        @worker.event_handler("on_pipeline_error")
        async def failed(_: object, frame: ErrorFrame) -> None:
            # Its message may contain callers' speech.
            log.warning("an engine fails", extra={"fields": {"processor": str(frame.processor)}})
            self._turns.end()
            if frame.processor and not frame.processor.is_usable:
                entrance.socket.ending = BROKEN

    async def _remember(
        self, worker: PipelineWorker, entrance: CallerConnection, role: Role, content: str | None
    ) -> None:
        if not content:
            return
        try:
            await self._memory.add(role, content)
        except LostLeaseError:
            entrance.socket.ending = CONVERSATION_TAKEN
            await worker.cancel(reason=CONVERSATION_TAKEN.reason)
        except RedisError:
            # The conversation continues; only a reconnect would miss this turn.
            log.exception("a turn could not be stored")
