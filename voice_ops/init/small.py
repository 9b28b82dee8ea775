"""Creates a first file for few calls from `deployments/small.yaml`, which only uses CPUs."""

import re
from typing import TYPE_CHECKING

from voice_blueprint.shipped import ROOT
from voice_ops.init.sizes import MAX_SMALL_CALLS, offers_small_types

if TYPE_CHECKING:
    from voice_ops.init.answers import Answers

SMALL_FILE = ROOT / "deployments/small.yaml"


def is_small_file_supported(region: str, calls: int, *, agents: bool) -> bool:
    """Return True if the small deployment can serve the calls, and the region offers its instance types."""
    return offers_small_types(region) and calls <= MAX_SMALL_CALLS and not agents


def render_template(name: str, answers: "Answers") -> str:
    """Return the text of the file for the answers, with the placeholders ``$budget`` and ``$schema``."""
    text = SMALL_FILE.read_text(encoding="utf-8")
    for pattern, value in {
        r"\$schema=.*": "$$schema=$schema",
        r"(?<=^name: ).*": name,
        r"(?<=calls: )20(?=,)": str(answers.calls),
        r"(?<=^  region: ).*": answers.region,
        r"(?<=availability_zones: \[)[^\]]*": f"{answers.region}a",
        r"(?<=monthly_budget_usd: ).*": "$budget",
    }.items():
        text, count = re.subn(pattern, value, text, count=1, flags=re.MULTILINE)
        if not count:
            raise ValueError(f"{SMALL_FILE} has no {pattern}")
    return text
