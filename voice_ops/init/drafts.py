"""Creates drafts of a first file, and estimates their monthly cost."""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from string import Template
from tempfile import TemporaryDirectory

import voice_blueprint
from voice_blueprint.file.model.deployment import AZURE_NODES_SUFFIX, Deployment
from voice_blueprint.file.model.text import MAX_NAME_LENGTH
from voice_ops.init import sizes, small
from voice_ops.init.answers import Answers, Cloud

UNLIMITED_BUDGET_USD = 10**12
"""Budget of a draft that is priced before the budget is known. The price does not depend on the budget."""


@dataclass(frozen=True)
class Draft:
    """A candidate file that fits the answers.

    Attributes:
        name: Description of the hardware that serves the calls.
        template: Text of the file with placeholders.
        placeholder_values: All values except ``budget`` and ``schema``.
    """

    name: str
    template: str
    placeholder_values: Mapping[str, object]

    def render_text(self, budget: int, schema: str) -> str:
        """Return the text of the file, in which values replace the placeholders.

        Args:
            budget: USD per month.
            schema: Path of the schema in the first line, relative to the file.
        """
        return Template(self.template).substitute(self.placeholder_values, budget=budget, schema=schema)

    @contextmanager
    def load(self, budget: int = UNLIMITED_BUDGET_USD) -> Iterator[Deployment]:
        """Load the draft as a deployment.

        The file exists until the context ends, since the Pulumi programs read the file themselves.

        Raises:
            DeploymentFileError: The file is invalid, which is a defect of the template.
        """
        with TemporaryDirectory(prefix="voice-init-") as folder:
            file = Path(folder) / "draft.yaml"
            file.write_text(self.render_text(budget, "schema.json"), encoding="utf-8")
            yield voice_blueprint.load(file)


def derive_deployment_name(file: Path) -> str:
    """Return a valid deployment name for a file: lower-case words and digits, joined by hyphens.

    A name must not end like the resource group of another deployment's nodes on Azure; it ends with ``-node`` instead.
    """
    plain = unicodedata.normalize("NFKD", file.stem).encode("ascii", "ignore").decode().lower()
    words = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")
    named = words if words[:1].isalpha() else f"voice-{words}"
    name = named[:MAX_NAME_LENGTH].strip("-")
    return name.removesuffix("s") if name.endswith(AZURE_NODES_SUFFIX) else name


def create_drafts(requirements: Answers, name: str) -> list[Draft]:
    """Return the drafts for the answers, in order of preference: large models on GPUs, then a small model on CPUs.

    Raises:
        UnsupportedAnswersError: No draft serves the answers.
    """
    result, refused = [], None
    try:
        result.append(_create_gpu_draft(requirements, name))
    except sizes.UnsupportedAnswersError as error:
        refused = error
    if requirements.cloud is Cloud.AWS and small.is_small_file_supported(
        requirements.region, requirements.calls, agents=requirements.agents
    ):
        result.append(Draft(f"{requirements.calls} calls on CPUs", small.render_template(name, requirements), {}))
    if refused and not result:
        raise refused
    return result


def _create_gpu_draft(requirements: Answers, name: str) -> Draft:
    size_values = (
        sizes.build_aws_placeholder_values if requirements.cloud is Cloud.AWS else sizes.build_azure_placeholder_values
    )
    values = size_values(requirements.region, requirements.calls, agents=requirements.agents)
    values |= {"name": name, "region": requirements.region, "calls": requirements.calls}
    values["agents"] = (
        Template(_read_template(f"agents-{requirements.cloud}.txt")).substitute(values) if requirements.agents else ""
    )
    load_text = "calls with agents" if requirements.agents else "calls"
    return Draft(f"{requirements.calls:,} {load_text} on GPUs", _read_template(f"{requirements.cloud}.yaml"), values)


def _read_template(template: str) -> str:
    return (Path(__file__).parent / template).read_text(encoding="utf-8")


@dataclass(frozen=True)
class MonthlyUsd:
    """Low, expected and peak cost, USD per month. Items without a list price are excluded."""

    low: float
    expected: float
    peak: float


@dataclass(frozen=True)
class PricedDraft:
    """A draft and its monthly cost."""

    draft: Draft
    monthly_usd: MonthlyUsd

    @property
    def name(self) -> str:
        """Description of the hardware that serves the calls."""
        return self.draft.name

    @property
    def price_text(self) -> str:
        """Expected monthly cost and its range, as text."""
        return (
            f"about {self.monthly_usd.expected:,.0f} USD ({self.monthly_usd.low:,.0f} to {self.monthly_usd.peak:,.0f})"
        )


def price_drafts(draft_list: list[Draft]) -> Iterator[PricedDraft]:
    """Yield each draft with its monthly cost, which is estimated as in `voice cost`. Each estimate takes seconds.

    The lowest price of another region is used for hosts without a price in their region.
    """
    from voice_ops.cost.command import load_prices  # noqa: PLC0415  not needed by `voice init --help`
    from voice_ops.cost.estimate import Assumptions, collect_charged_sections, price_section  # noqa: PLC0415
    from voice_ops.cost.model import sum_amounts  # noqa: PLC0415

    book = load_prices()
    for draft in draft_list:
        with draft.load() as deployment:
            estimates = [
                price_section(section, book) for section in collect_charged_sections(deployment, Assumptions())
            ]
        usd = sum_amounts(each.usd for each in estimates) + sum_amounts(
            host.min_usd for each in estimates for host in each.unavailable_hosts
        )
        yield PricedDraft(draft, MonthlyUsd(*usd.cases))
