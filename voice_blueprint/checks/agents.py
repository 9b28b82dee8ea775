"""Checks on the agent tier of either cloud."""

from collections.abc import Iterator

from voice_blueprint import catalog
from voice_blueprint.capacity.conversations import (
    CONVERSATION_CPU_S_PER_MINUTE,
    MAX_CONVERSATIONS_PER_CORE,
    ConversationStage,
    calculate_concurrent_conversations,
    iter_conversation_chains,
)
from voice_blueprint.catalog.inference import ModelCard, ModelTask
from voice_blueprint.checks.azure.sizing import build_scale_out_remedy
from voice_blueprint.checks.base import Violation, deployment_check, format_location
from voice_blueprint.file.model.agents import AgentPods, AwsAgents, ClusterService, Endpoint
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.file.source import Location


@deployment_check(
    "agents-fit-core",
    f"An agent process has one core, which supports at most {MAX_CONVERSATIONS_PER_CORE} conversations.",
    source="voice_blueprint/capacity: CPU time of a conversation",
)
def check_agents_fit_core(deployment: Deployment) -> Iterator[Violation]:
    for at, agents in _iter_agent_sections(deployment):
        if agents.conversations > MAX_CONVERSATIONS_PER_CORE:
            share = agents.conversations * CONVERSATION_CPU_S_PER_MINUTE / 60
            yield Violation(
                (*at, "conversations"),
                f"{agents.conversations} conversations need {share:.0%} of a process's one core "
                f"({CONVERSATION_CPU_S_PER_MINUTE:g} s per minute each), which delays the detection of speech and of "
                "the end of a turn",
                f"set conversations to at most {MAX_CONVERSATIONS_PER_CORE}, and run more processes",
            )


@deployment_check(
    "agents-fit-tiers",
    "Agents admit no more conversations than their ASR, language model and speech services support.",
    source="voice_blueprint/capacity: bounds with their sources (`voice plan` shows them)",
)
def check_agents_fit_tiers(deployment: Deployment) -> Iterator[Violation]:
    for agents, *others in _iter_conversation_chains(deployment):
        for each in others:
            if agents.most > each.most:
                most = each.most * agents.units.max // agents.most
                at = format_location(agents.location)
                reduction = f"set {at}.max to {most}" if most >= agents.units.min else f"lower {at}"
                yield Violation(
                    agents.location,
                    f"agents admit up to {agents.most:,} conversations, but {each.name} supports "
                    f"{each.most:,} ({each.source})",
                    f"{reduction}, or raise the maximum of {each.name} ({format_location(each.location)})",
                )


@deployment_check(
    "load-fits-agents",
    "At their maximum, agents and their language model and speech services support the peak of the load.",
    source="voice_blueprint/capacity; the load's `conversation_share`",
)
def check_load_fits_agents(deployment: Deployment) -> Iterator[Violation]:
    load = deployment.load
    services = [each.name for each in deployment.azure_section.services] if deployment.azure_section else []
    for agents, *others in _iter_conversation_chains(deployment):
        # The load applies to the AWS section if there is one.
        if load is None or (agents.location[0] == "azure" and deployment.aws_section):
            continue
        mean, peak = calculate_concurrent_conversations(load)
        for each in (agents, *(other for other in others if other.name in services)):
            if each.most >= peak:
                continue
            low, high = each.calculate_required_units(mean), each.calculate_required_units(peak)
            remedy = f"set {format_location(each.location)} to {{min: {low}, max: {max(high, low + 1)}}}"
            if each is not agents:
                remedy = build_scale_out_remedy(deployment.azure, each.name, high - each.units.max)
            yield Violation(
                each.location,
                f"{each.name} supports at most {each.most:,} conversations, but the load's peak is "
                f"{peak:,} ({load.calls:,} x {load.peak_factor:g} x {load.conversation_share:g})",
                f"{remedy}, or lower load.conversation_share if fewer callers talk to an agent",
            )


@deployment_check(
    "voice-licence-allows-use",
    "The licence of an endpoint's voice, or an agreement, allows the use of the deployment.",
    source="https://huggingface.co/mistralai/Voxtral-4B-TTS-2603 (CC BY-NC 4.0); each model's row names its licence",
)
def check_voice_licence_allows_use(deployment: Deployment) -> Iterator[Violation]:
    for at, agents in _iter_agent_sections(deployment):
        card = _find_model_card(agents.speech.model) if isinstance(agents.speech, Endpoint) else None
        section = deployment.azure if at[0] == "azure" else deployment.aws.agents
        assert section is not None  # noqa: S101  the section that contains the agents
        accepted_models = {each.model for each in section.model_agreements}
        if card and section.commercial and not card.commercial_use and card.name not in accepted_models:
            yield Violation(
                (*at, "speech", "model"),
                f"{card.name} is licensed {card.licence}, which forbids commercial use, and this deployment is "
                "commercial",
                "use a speech engine with a permissive licence, add the agreement with its owner to "
                "model_agreements, or set commercial: false if the use is not commercial",
            )


@deployment_check(
    "chat-model-hears",
    "A language model that receives audio supports audio input.",
    source="voice_blueprint/catalog/models.yaml: the task audio-chat; models outside the catalogue are not checked",
)
def check_chat_model_supports_audio(deployment: Deployment) -> Iterator[Violation]:
    for at, agents in _iter_agent_sections(deployment):
        if agents.listening != "audio":
            continue
        chat = agents.chat
        if isinstance(chat, ClusterService):
            services = deployment.azure.services
            model_name = next((each.model for each in services if each.name == chat.service), None)
        else:
            model_name = chat.model
        card = _find_model_card(model_name)
        if card and card.task is not ModelTask.AUDIO_CHAT:
            audio_models = ", ".join(
                each.name for each in catalog.models().values() if each.task is ModelTask.AUDIO_CHAT
            )
            yield Violation(
                (*at, "chat"),
                f"{card.name} receives the callers' audio, but supports only text ({card.task})",
                f"use a model that supports audio input ({audio_models}), or set listening: transcript",
            )


def _find_model_card(model_name: str | None) -> ModelCard | None:
    return next((each for each in catalog.models().values() if model_name in (each.name, each.repository)), None)


def _iter_agent_sections(deployment: Deployment) -> Iterator[tuple[Location, AwsAgents | AgentPods]]:
    for cloud, section in (("aws", deployment.aws_section), ("azure", deployment.azure_section)):
        if section and section.agents:
            yield (cloud, "agents"), section.agents


def _iter_conversation_chains(deployment: Deployment) -> Iterator[tuple[ConversationStage, ...]]:
    """Yield the stages of a conversation for each section with agents, starting with the agents."""
    try:
        yield from iter_conversation_chains(deployment)
    except LookupError:
        return  # a missing pool, or one without GPUs, is reported by another check
