"""Models: what their licences allow, and whether their weights can be fetched."""

import os
from collections.abc import Iterator, Mapping
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from blueprint import catalog
from blueprint.catalog import ModelCard
from blueprint.file.model.deployment import Deployment
from blueprint.hosts import images_of
from ops.preflight.report import Row, Status

FILE = "deployment file"
MODELS = "models"
TOKEN = "HF_TOKEN"  # noqa: S105  the name of a variable
_TIMEOUT_S = 10


def file_rows(deployment: Deployment) -> Iterator[Row]:
    """Answer what the file alone can answer."""
    missing = [image for image in images_of(deployment) if image not in deployment.images]
    yield Row(
        FILE,
        "digests of the images",
        Status.WARNING if missing else Status.FINE,
        f"none for {', '.join(missing)}" if missing else "every image has one",
        "one for each image that runs",
        "what runs them is held at 0 until their digests stand in the file" if missing else "",
    )


def model_rows(deployment: Deployment, environment: Mapping[str, str] = os.environ) -> Iterator[Row]:
    """Answer for every model: its licence, and with ``HF_TOKEN`` whether Hugging Face gives the weights out."""
    for card in cards(deployment):
        yield _licence(deployment, card)
    for card in cards(deployment):
        yield _access(card, environment)


def cards(deployment: Deployment) -> list[ModelCard]:
    """Return the models that the deployment serves from Hugging Face, each once."""
    names = [fleet.vllm.model for fleet in deployment.aws_half.asr if fleet.vllm] if deployment.aws_half else []
    names += [service.model for service in deployment.azure_half.services] if deployment.azure_half else []
    return [catalog.models()[name] for name in dict.fromkeys(names)]


def _licence(deployment: Deployment, card: ModelCard) -> Row:
    azure = deployment.azure_half
    agreed = {each.model: each.reference for each in azure.model_agreements} if azure else {}
    found = card.licence + (f"; agreement: {agreed[card.name]}" if card.name in agreed else "")
    fine = card.commercial_use or card.name in agreed or (azure is not None and not azure.commercial)
    return Row(
        MODELS,
        f"licence of {card.name}",
        Status.FINE if fine else Status.BLOCKS,
        found,
        "non-commercial use" if azure and not azure.commercial else "commercial use",
        "" if fine else "name the agreement under azure.model_agreements, or take another model",
    )


def _access(card: ModelCard, environment: Mapping[str, str]) -> Row:
    asked = f"weights of {card.repository}"
    token = environment.get(TOKEN)
    if not token:
        return Row(MODELS, asked, Status.NOT_ASKED, f"{TOKEN} is not set", remedy=f"set {TOKEN} to ask Hugging Face")
    hub = environment.get("HF_ENDPOINT", "https://huggingface.co")
    request = Request(  # noqa: S310  the operator's own endpoint
        f"{hub}/api/models/{card.repository}/auth-check", headers={"Authorization": f"Bearer {token}"}
    )
    try:
        with urlopen(request, timeout=_TIMEOUT_S):  # noqa: S310
            return Row(MODELS, asked, Status.FINE, "the token may fetch them", "read access")
    except HTTPError as error:
        return Row(MODELS, asked, *_refused(error.code), needed="read access", remedy=_remedy(hub, card, error.code))
    except (URLError, TimeoutError, ValueError) as error:
        reason = getattr(error, "reason", error)
        remedy = "run it again where Hugging Face can be reached"
        return Row(MODELS, asked, Status.UNANSWERED, f"{hub} was not reached: {reason}", remedy=remedy)


def _refused(code: int) -> tuple[Status, str]:
    found = {
        401: "the token is not accepted",
        403: "the repository is gated, and its terms are not agreed to",
        404: "no such repository, or it is hidden from the token",
    }
    return (Status.BLOCKS, found[code]) if code in found else (Status.UNANSWERED, f"Hugging Face answered {code}")


def _remedy(hub: str, card: ModelCard, code: int) -> str:
    if code == 403:  # noqa: PLR2004  named in `_refused`
        return f"agree to the terms at {hub}/{card.repository} as the token's owner"
    return f"check {TOKEN} and {hub}/{card.repository}" if code in {401, 404} else "run it again in a minute"
