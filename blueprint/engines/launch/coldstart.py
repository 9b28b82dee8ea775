"""A cold start as a budget: what each phase takes, whose number that is, and what makes it shorter.

No figure was measured by this project; hosts report their own as the metric ``ColdStart``, a phase each.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from blueprint.contract.images import Image
from blueprint.contract.metrics import StartPhase


@dataclass(frozen=True)
class Lever:
    """Something that shortens a phase, and where it can be seen.

    Attributes:
        what: For people.
        wired_in: File of this repository: a launcher's, or a step of user data.
        shows_as: Text that stands in what is rendered from it.
    """

    what: str
    wired_in: str
    shows_as: str


KEPT_IMAGE = Lever(
    "an image that the disk has is not pulled again: warm pools and baked AMIs pull nothing",
    "userdata/steps/images.sh",
    "docker image inspect",
)
WARM_POOL = Lever(
    "hosts of a warm pool pull before they are stopped",
    "userdata/steps/every_boot.sh",
    "Warmed:*) touch",
)
FETCHED = Lever(
    "hosts fetch weights, and what Neuron compiled of them, from a bucket that a job fills beforehand; those of a warm "
    "pool before they are stopped",
    "userdata/steps/artifacts.sh",
    "aws s3 sync",
)
KEPT_WEIGHTS = Lever(
    "weights outlive the container: on NVMe (AWS), on the shared model cache (Azure), which a job fills beforehand",
    "blueprint/engines/launch/vllm.py",
    "HF_HOME=",
)
PARALLEL_LOAD = Lever(
    "weight files are read in parallel; models in Mistral's own layout cannot",
    "blueprint/engines/launch/vllm.py",
    "--load-format fastsafetensors",
)
COMPILE_CACHE = Lever(
    "torch.compile's and Triton's results outlive the container",
    "blueprint/engines/launch/vllm.py",
    "VLLM_CACHE_ROOT=",
)
FEWER_GRAPHS = Lever(
    "graphs are captured for batch sizes that can occur, not for vLLM's default list",
    "blueprint/engines/launch/vllm.py",
    "cudagraph_capture_sizes",
)
STARTUP_PLAN = Lever(
    "the result of memory profiling is kept beside the compile cache",
    "blueprint/engines/launch/vllm.py",
    "VLLM_ENABLE_STARTUP_PLAN=1",
)
NEURON_CACHE = Lever(
    "compiled NEFF files outlive the container",
    "blueprint/engines/launch/neuron.py",
    "NEURON_COMPILE_CACHE_URL=",
)


@dataclass(frozen=True)
class PhaseBudget:
    """One phase of a first start, with empty caches.

    Attributes:
        seconds: What it takes; ``None`` where nobody has published it.
        source: Whose number it is, and for what.
        levers: What shortens it from the second start on, or at all.
    """

    phase: StartPhase
    seconds: float | None
    source: str
    levers: tuple[Lever, ...]


_UNKNOWN = "not published"
_BREAKDOWN = "11-minute breakdown of a vLLM start, pull request 1848 of talos"
_PULL = "15-20 GB in 4-6 minutes, AWS blog; vllm-openai is about 12 GB compressed (vllm issue 27154)"

BUDGETS: dict[Image, tuple[PhaseBudget, ...]] = {
    Image.ASR_VLLM: (
        PhaseBudget(StartPhase.PULL, 300, _PULL, (KEPT_IMAGE, WARM_POOL)),
        PhaseBudget(
            StartPhase.WEIGHTS,
            63 + 243,
            f"63 s from disk: {_BREAKDOWN}; 243 s to fetch the 48.6 GB of Voxtral-24B at 200 MB/s, assumed",
            (FETCHED, KEPT_WEIGHTS, PARALLEL_LOAD),
        ),
        PhaseBudget(StartPhase.COMPILE, 166, _BREAKDOWN, (COMPILE_CACHE,)),
        PhaseBudget(StartPhase.GRAPHS, 90, f"{_BREAKDOWN}; vLLM's default list of sizes", (FEWER_GRAPHS,)),
        PhaseBudget(StartPhase.WARM_UP, 131, f"memory profiling alone: {_BREAKDOWN}", (STARTUP_PLAN,)),
    ),
    Image.TTS_OMNI: (
        PhaseBudget(StartPhase.PULL, 300, f"as asr-vllm, which has the same base: {_PULL}", ()),
        PhaseBudget(StartPhase.WEIGHTS, None, _UNKNOWN, (KEPT_WEIGHTS,)),
        PhaseBudget(StartPhase.COMPILE, None, _UNKNOWN, (COMPILE_CACHE,)),
        PhaseBudget(StartPhase.GRAPHS, None, _UNKNOWN, ()),
        PhaseBudget(StartPhase.WARM_UP, None, _UNKNOWN, ()),
    ),
    Image.ASR_NEURON: (
        PhaseBudget(StartPhase.PULL, None, _UNKNOWN, (KEPT_IMAGE, WARM_POOL)),
        PhaseBudget(StartPhase.WEIGHTS, None, _UNKNOWN, (FETCHED,)),
        PhaseBudget(
            StartPhase.COMPILE,
            385,
            "Mistral-Small-3.1-24B on trn1.32xlarge (NxDI contrib): a larger model than Whisper",
            (FETCHED, NEURON_CACHE),
        ),
        PhaseBudget(StartPhase.WARM_UP, None, _UNKNOWN, ()),
    ),
}
"""The images whose start takes minutes."""


def known_seconds(image: Image, *, pull: bool) -> float:
    """Return what the phases with a number take together; with or without the pull of the image."""
    return sum(row.seconds or 0 for row in BUDGETS[image] if pull or row.phase is not StartPhase.PULL)


LEAST_READY_S = 900
"""What a host's containers have to be ready in where nothing longer is known."""
UNKNOWN_SHARE = 2
"""A budget is twice what is known: fetching and warming up are known of few engines, and of other models than ours."""


def ready_budget_s(images: Iterable[Image]) -> int:
    """Return the longest that a host's containers may take, once started, to report ready, in whole minutes.

    Accelerator engines fetch weights and compile at their first start; a host that is not ready by then is given up.
    """
    known = max((known_seconds(image, pull=False) for image in images if image in BUDGETS), default=0)
    return max(LEAST_READY_S, math.ceil(UNKNOWN_SHARE * known / 60) * 60)


def table() -> str:
    """Return the budgets as a Markdown table."""
    lines = ["| Image | Phase | First start, s | Whose number | Lever | Where |", "|---|---|---|---|---|---|"]
    for image, rows in BUDGETS.items():
        for row in rows:
            seconds = "?" if row.seconds is None else f"{row.seconds:g}"
            levers = "; ".join(lever.what for lever in row.levers) or "-"
            where = ", ".join(f"`{lever.shows_as}` in {lever.wired_in}" for lever in row.levers) or "-"
            lines.append(f"| {image} | {row.phase} | {seconds} | {row.source} | {levers} | {where} |")
        lines.append(f"| {image} | **known, in all** | {known_seconds(image, pull=True):g} | | | |")
    return "\n".join(lines)
