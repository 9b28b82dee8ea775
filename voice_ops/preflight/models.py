"""Checks for models: licences, and access to their weights."""

import os
from collections.abc import Iterator, Mapping
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from voice_blueprint import catalog
from voice_blueprint.capacity.load import calculate_peak_calls
from voice_blueprint.capacity.tiers import build_caller_tier_capacities, sum_calls_by_tier
from voice_blueprint.catalog import ModelCard
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.hosts import list_required_images
from voice_ops.preflight.report import CheckResult, CheckStatus, create_check_result

FILE_AREA = "deployment file"
MODELS_AREA = "models"
HF_TOKEN_VARIABLE = "HF_TOKEN"  # noqa: S105  name of the variable
_REQUEST_TIMEOUT_S = 10
_REFUSAL_BY_STATUS = {
    401: ("the token is invalid", "check {token} and {page}"),
    403: (
        "the repository is gated, and its terms have not been accepted",
        "accept the terms at {page} as the token's owner",
    ),
    404: ("the repository does not exist, or the token has no access to it", "check {token} and {page}"),
}
"""Meaning of each HTTP status from Hugging Face, with a remedy."""


def check_deployment_file(deployment: Deployment) -> Iterator[CheckResult]:
    """Yield the results of checks that require only the file."""
    missing = [image for image in list_required_images(deployment) if image not in deployment.images]
    yield create_check_result(
        FILE_AREA,
        "digests of the images in the file",
        f"none for {', '.join(missing)}" if missing else "every image has a digest",
        "one for each image",
        warns="their hosts, tasks or replicas are kept at 0 until the file contains the digests" if missing else "",
    )


def check_call_capacity(deployment: Deployment) -> Iterator[CheckResult]:
    """Report the number of calls that a file's tiers support.

    The checks of the file have already rejected an excessive load.
    """
    tier_ranges, load = sum_calls_by_tier(build_caller_tier_capacities(deployment)), deployment.load
    if not tier_ranges:
        return
    tier, (_, max_calls) = min(tier_ranges.items(), key=lambda item: item[1][1])
    low = min(min_count for min_count, _ in tier_ranges.values())
    needed = f"{load.calls:,}, at the peak {calculate_peak_calls(load):,}" if load else ""
    yield create_check_result(FILE_AREA, "concurrent calls", f"{low:,} to {max_calls:,}; limited by {tier}", needed)


def check_licences(deployment: Deployment) -> Iterator[CheckResult]:
    """Report whether the licence of each model permits the use."""
    for card in list_model_cards(deployment):
        yield _check_licence(deployment, card)


def check_model_access(deployment: Deployment, environment: Mapping[str, str] = os.environ) -> Iterator[CheckResult]:
    """Check with ``HF_TOKEN`` whether Hugging Face permits the download of the weights."""
    for card in list_model_cards(deployment):
        yield _check_card_access(card, environment)


def list_model_cards(deployment: Deployment) -> list[ModelCard]:
    """Return the models that the deployment serves from Hugging Face, without duplicates."""
    names = [fleet.vllm.model for fleet in deployment.aws_section.asr if fleet.vllm] if deployment.aws_section else []
    names += [service.model for service in deployment.azure_section.services] if deployment.azure_section else []
    return [catalog.models()[name] for name in dict.fromkeys(names)]


def _check_licence(deployment: Deployment, card: ModelCard) -> CheckResult:
    azure = deployment.azure_section
    agreed = {each.model: each.reference for each in azure.model_agreements} if azure else {}
    result = card.licence + (f"; agreement: {agreed[card.name]}" if card.name in agreed else "")
    is_allowed = card.commercial_use or card.name in agreed or (azure is not None and not azure.commercial)
    return create_check_result(
        MODELS_AREA,
        f"licence of {card.name}",
        result,
        "non-commercial use" if azure and not azure.commercial else "commercial use",
        blocks="" if is_allowed else "add the agreement to azure.model_agreements, or use another model",
    )


def _check_card_access(card: ModelCard, environment: Mapping[str, str]) -> CheckResult:
    question = f"weights of {card.repository}"
    token = environment.get(HF_TOKEN_VARIABLE)
    if not token:
        return CheckResult(
            MODELS_AREA,
            question,
            CheckStatus.SKIPPED,
            f"{HF_TOKEN_VARIABLE} is not set",
            remedy=f"set {HF_TOKEN_VARIABLE} to query Hugging Face",
        )
    hub = environment.get("HF_ENDPOINT", "https://huggingface.co")
    request = Request(  # noqa: S310  the operator configures the endpoint
        f"{hub}/api/models/{card.repository}/auth-check", headers={"Authorization": f"Bearer {token}"}
    )
    try:
        with urlopen(request, timeout=_REQUEST_TIMEOUT_S):  # noqa: S310
            return create_check_result(MODELS_AREA, question, "the token can download them", "read access")
    except HTTPError as error:
        if error.code not in _REFUSAL_BY_STATUS:
            result, remedy = f"Hugging Face returned {error.code}", "run it again in a minute"
            return CheckResult(MODELS_AREA, question, CheckStatus.UNKNOWN, result, "read access", remedy)
        result, remedy = _REFUSAL_BY_STATUS[error.code]
        page = f"{hub}/{card.repository}"
        return create_check_result(
            MODELS_AREA, question, result, "read access", blocks=remedy.format(token=HF_TOKEN_VARIABLE, page=page)
        )
    except (URLError, TimeoutError, ValueError) as error:
        reason = getattr(error, "reason", error)
        remedy = "run the command again where Hugging Face is reachable"
        return CheckResult(MODELS_AREA, question, CheckStatus.UNKNOWN, f"cannot reach {hub}: {reason}", remedy=remedy)
