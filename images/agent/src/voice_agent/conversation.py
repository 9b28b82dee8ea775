"""Runs a conversation: transport, transcription, turns, language model, speech synthesis and history."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial

import httpx2
from pipecat.adapters.llm.schemas.tools_schema import ToolsSchema
from pipecat.frames.frames import (
    ErrorFrame,
    Frame,
    InterruptionFrame,
    LLMRunFrame,
    OutputTransportMessageUrgentFrame,
)
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

from voice_agent.chat import AudioChatLLMService, ChatLLMService
from voice_agent.connections import MALFORMED_MESSAGE, CallerConnection, CloseReason, JsonObject
from voice_agent.early_answers import EarlyAnswerStrategy
from voice_agent.interruptions import InterruptionStrategy
from voice_agent.memory import LEASE_S, MAX_MESSAGES, ConversationHistory, LostLeaseError, Message, Role
from voice_agent.messages import GuardedSerializer
from voice_agent.metrics import Metrics
from voice_agent.models import TurnModels
from voice_agent.playback import PausableTransport, Playback
from voice_agent.settings import AgentSettings
from voice_agent.speech_synthesis import SpeechSynthesisService
from voice_agent.speech_to_text import SAMPLE_RATE_HZ, GatewaySTTService, PresenceConnection
from voice_agent.tools import Toolset
from voice_agent.trace import Trace
from voice_agent.turns import TurnTracker
from voice_agent.usage import Usage

OUTPUT_SAMPLE_RATE = 24000
"""Sample rate, in Hz, of the audio that callers receive."""

LAST_TURN_TIMEOUT_S = 20.0
"""Maximum duration of a caller's last turn, after which the caller is asked to reconnect to another agent."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Engines:
    """The engines for a conversation, except the two turn models.

    Attributes:
        speech_to_text: Speech to text, or only the caller's session if the language model accepts audio.
    """

    client: httpx2.AsyncClient
    trace: Trace
    speech_to_text: GatewaySTTService | PresenceConnection
    tools: Toolset
    tool_schema: ToolsSchema | NotGiven
    usage: Usage


CALLER_IDLE = CloseReason(1000, "the caller has been silent for too long")
CONVERSATION_TAKEN_OVER = CloseReason(1008, "another connection has this conversation")
SERVICE_RESTART = CloseReason(1012, "this agent is stopping; connect again with the conversation's token")
ENGINE_FAILED = CloseReason(1013, "an engine fails; connect again with the conversation's token")


def _to_pipecat_message(message: Message) -> LLMContextMessage:
    if message["role"] == "user":
        return {"role": "user", "content": message["content"]}
    return {"role": "assistant", "content": message["content"]}


def select_newest_messages(messages: list[LLMContextMessage]) -> list[LLMContextMessage]:
    """Return all messages if they do not exceed the maximum. Otherwise, return the newer half, starting at a question.

    If the oldest message were dropped after each turn, each request would have a different prefix, and an engine could
    not use its cache. A tool result is only valid after its tool call, and both follow a question.
    """
    if len(messages) <= MAX_MESSAGES:
        return messages
    newer = range(len(messages) - MAX_MESSAGES // 2, len(messages))
    begin = next((index for index in newer if _is_question(messages[index])), 0)
    return messages[begin:]


def _is_question(message: LLMContextMessage) -> bool:
    return isinstance(message, dict) and message["role"] == "user"


def _needs_answer(messages: list[LLMContextMessage]) -> bool:
    """Return True if the last question or tool result has no answer yet."""
    last = messages[-1] if messages else None
    return isinstance(last, dict) and last["role"] in {"user", "tool"}


async def _queue_messages(worker: PipelineWorker, messages: Iterable[JsonObject]) -> None:
    for message in messages:
        await worker.queue_frame(OutputTransportMessageUrgentFrame(message=message))


class Conversation:
    """A conversation with a caller, which begins when the socket is accepted."""

    def __init__(
        self,
        settings: AgentSettings,
        models: TurnModels,
        metrics: Metrics,
        memory: ConversationHistory,
        engines: Engines,
    ) -> None:
        self._settings = settings
        self._models = models
        self._metrics = metrics
        self._memory = memory
        self._engines = engines
        self._turns = TurnTracker()
        self._has_repeated_request = False
        """Whether the answer to the last question was requested again after noise."""
        self._pending_call_answers = 0
        """Number of answers that called a tool and have not finished playing. Each is followed by another answer."""

    async def run(self, caller_connection: CallerConnection, wait_for_stop: Callable[[], Awaitable[None]]) -> None:
        """Run the conversation until the caller or the agent ends it.

        Args:
            wait_for_stop: Function that returns when the conversation has to end after its current turn.

        Raises:
            RedisError: The store does not respond.
        """
        engines, history = self._engines, await self._memory.take_over()
        worker = self._create_worker(caller_connection, history)

        async def end(close: CloseReason) -> None:
            caller_connection.socket.ending = close
            await worker.cancel(reason=close.reason)

        async def keep_alive() -> None:
            try:
                while True:
                    await asyncio.sleep(LEASE_S / 2)
                    with contextlib.suppress(RedisError):  # the store recovers, or the lease expires
                        await self._memory.renew_lease()
            except LostLeaseError:
                await end(CONVERSATION_TAKEN_OVER)

        async def end_on_stop() -> None:
            await wait_for_stop()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._turns.ended.wait(), LAST_TURN_TIMEOUT_S)
            await end(SERVICE_RESTART)

        async def wait_for_end(presence: PresenceConnection) -> None:
            await presence.maintain_session()
            await end(ENGINE_FAILED)

        present = (
            [wait_for_end(engines.speech_to_text)] if isinstance(engines.speech_to_text, PresenceConnection) else []
        )
        side_tasks = [asyncio.create_task(each) for each in (keep_alive(), end_on_stop(), *present)]
        runner = WorkerRunner(handle_sigint=False)
        try:
            await runner.add_workers(worker)
            await runner.run()
        finally:
            for task in side_tasks:
                task.cancel()
            with contextlib.suppress(RedisError):
                await self._memory.release_lease()
            engines.trace.end()
            log.info("conversation ended", extra={"fields": {"code": caller_connection.socket.ending.code}})

    def _create_worker(self, caller_connection: CallerConnection, history: list[Message]) -> PipelineWorker:
        settings, engines, vad = self._settings, self._engines, self._models.create_voice_detector()
        playback = Playback()
        transport = PausableTransport(
            caller_connection.socket,
            FastAPIWebsocketParams(
                audio_in_enabled=True,
                audio_out_enabled=True,
                serializer=GuardedSerializer(
                    caller_connection.serializer,
                    partial(setattr, caller_connection.socket, "ending", MALFORMED_MESSAGE),
                ),
                allowed_origins=[],
            ),
            playback,
        )
        messages = [_to_pipecat_message(message) for message in history]
        context = LLMContext(messages, tools=engines.tool_schema)
        stt_processors = [engines.speech_to_text] if isinstance(engines.speech_to_text, GatewaySTTService) else []
        chat_arguments = settings, engines.trace, self._metrics.count_tokens, engines.usage
        chat = ChatLLMService(*chat_arguments) if stt_processors else AudioChatLLMService(*chat_arguments, context)
        engines.tools.register(chat)
        speaking = SpeechSynthesisService(settings, engines.client, engines.trace, engines.usage)
        turn = self._models.create_turn_analyzer()
        interruption_processed = asyncio.Event()
        if stt_processors:
            turns = UserTurnStrategies(
                start=[
                    InterruptionStrategy(
                        playback,
                        lambda: not self._turns.ended.is_set(),
                        lambda: speaking.answer,
                        self._metrics.record_interruption,
                        interruption_processed,
                    )
                ],
                stop=[EarlyAnswerStrategy(turn, vad, stt_processors[0])],
            )
        else:  # without transcripts, coughs and interruptions are indistinguishable
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
            params=PipelineParams(
                audio_in_sample_rate=SAMPLE_RATE_HZ, audio_out_sample_rate=OUTPUT_SAMPLE_RATE, enable_metrics=True
            ),
            enable_rtvi=False,
            idle_timeout_secs=settings.idle_timeout_s,
            observers=[
                latency,
                self._turns,
                *([] if stt_processors else [self._metrics.create_interruption_observer()]),
            ],
            processor_unusable_policy=ProcessorUnusablePolicy.CANCEL,
        )
        self._register_turn_handlers(worker, caller_connection, caller, agent)
        self._register_tool_call_handlers(chat)
        if isinstance(chat, AudioChatLLMService):
            self._register_transcript_handlers(worker, caller_connection, chat)
        self._register_error_handlers(worker, caller_connection)

        @agent.event_handler("on_after_process_frame")
        async def on_agent_frame(_: object, frame: Frame) -> None:
            if isinstance(frame, InterruptionFrame):
                interruption_processed.set()

        @transport.event_handler("on_client_connected")
        async def on_connect(*_: object) -> None:
            if history and history[-1]["role"] == "user":
                self._turns.mark_response_pending()
                await worker.queue_frame(LLMRunFrame())  # no answer to the last message has been played

        @transport.event_handler("on_client_disconnected")
        async def on_disconnect(*_: object) -> None:
            await worker.cancel(reason="the caller has gone")

        @latency.event_handler("on_latency_breakdown")
        async def on_latency_breakdown(_: object, breakdown: LatencyBreakdown) -> None:
            if breakdown.measured_from is MeasuredFrom.USER_SILENCE:
                self._metrics.record_turn(breakdown)
                engines.trace.add_turn(breakdown)

        return worker

    def _register_turn_handlers(
        self,
        worker: PipelineWorker,
        caller_connection: CallerConnection,
        caller: LLMUserAggregator,
        agent: LLMAssistantAggregator,
    ) -> None:
        """Record the words of both sides, and detect when neither side speaks or waits for an answer."""

        @self._turns.event_handler("on_silent")
        async def on_silent(*_: object) -> None:
            await _queue_messages(worker, caller_connection.build_speech_end_messages())

        @caller.event_handler("on_user_turn_started")
        async def on_speech_start(*_: object) -> None:
            self._turns.mark_response_pending()
            self._pending_call_answers = 0  # an interruption has cancelled the calls

        @caller.event_handler("on_user_turn_stopped")
        async def on_user_turn(_aggregator: object, _strategy: object, message: UserTurnStoppedMessage) -> None:
            if message.content:
                self._has_repeated_request = False
                await self._record_question(worker, caller_connection, message.content)
            elif isinstance(
                self._engines.speech_to_text, GatewaySTTService
            ):  # otherwise the language model reports its transcript
                if not self._has_repeated_request and _needs_answer(caller.context.get_messages()):
                    self._has_repeated_request = True
                    await worker.queue_frame(LLMRunFrame())  # the noise of this turn has cancelled the answer
                else:
                    self._turns.clear_response_pending()

        @agent.event_handler("on_assistant_turn_stopped")
        async def on_assistant_turn(_aggregator: object, message: AssistantTurnStoppedMessage) -> None:
            agent.transform_messages(select_newest_messages)
            await _queue_messages(worker, caller_connection.build_answer_messages(message.content))
            await self._store_message(worker, caller_connection, "assistant", message.content)
            if self._pending_call_answers:  # another answer follows the results of the tools
                self._pending_call_answers -= 1
            elif not message.interrupted:
                self._turns.clear_response_pending()

    def _register_tool_call_handlers(self, chat: ChatLLMService) -> None:
        """Count the answers that call tools."""

        @chat.event_handler("on_function_calls_started")
        async def on_calls(*_: object) -> None:
            self._pending_call_answers += 1

    def _register_transcript_handlers(
        self, worker: PipelineWorker, caller_connection: CallerConnection, chat: AudioChatLLMService
    ) -> None:
        """Record the questions that the language model transcribes."""

        @chat.event_handler("on_heard")
        async def on_transcript(_: object, text: str) -> None:
            await self._record_question(worker, caller_connection, text)

    async def _record_question(self, worker: PipelineWorker, caller_connection: CallerConnection, text: str) -> None:
        await _queue_messages(worker, caller_connection.build_question_messages(text))
        await self._store_message(worker, caller_connection, "user", text)

    def _register_error_handlers(self, worker: PipelineWorker, caller_connection: CallerConnection) -> None:
        """Log the errors that end a conversation."""

        @worker.event_handler("on_idle_timeout")
        async def on_idle_timeout(*_: object) -> None:
            caller_connection.socket.ending = CALLER_IDLE

        @worker.event_handler("on_pipeline_error")
        async def on_pipeline_error(_: object, frame: ErrorFrame) -> None:
            # The error's message may contain callers' speech.
            log.warning("an engine fails", extra={"fields": {"processor": str(frame.processor)}})
            self._turns.clear_response_pending()
            if frame.processor and not frame.processor.is_usable:
                caller_connection.socket.ending = ENGINE_FAILED

    async def _store_message(
        self, worker: PipelineWorker, caller_connection: CallerConnection, role: Role, content: str | None
    ) -> None:
        if not content:
            return
        try:
            await self._memory.add_message(role, content)
        except LostLeaseError:
            caller_connection.socket.ending = CONVERSATION_TAKEN_OVER
            await worker.cancel(reason=CONVERSATION_TAKEN_OVER.reason)
        except RedisError:
            # The conversation continues. Only after a reconnect would this turn be missing.
            log.exception("a turn could not be stored")
