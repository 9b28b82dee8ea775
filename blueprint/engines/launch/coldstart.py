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
    "torch.compile's and Triton's results outlive the container; on AWS the job's own start leaves them in the bucket",
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
        fetched_s: What is left of it once the fleet's artifacts are on the disk; ``None`` is all of it. They are
            fetched before an engine starts.
    """

    phase: StartPhase
    seconds: float | None
    source: str
    levers: tuple[Lever, ...]
    fetched_s: float | None = None

    def takes_s(self, *, artifacts: bool) -> float:
        """Return what is known of it, for a fleet with artifacts or without."""
        return self.fetched_s if artifacts and self.fetched_s is not None else self.seconds or 0


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
            fetched_s=63,
        ),
        PhaseBudget(
            StartPhase.COMPILE,
            166,
            f"{_BREAKDOWN}; 20 s with a cache of another host: 5 to 20, Baseten's guide to torch.compile caches",
            (FETCHED, COMPILE_CACHE),
            fetched_s=20,
        ),
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
            "Mistral-Small-3.1-24B on trn1.32xlarge (NxDI contrib): a larger model than Whisper; 60 s to load what is "
            "compiled, assumed",
            (FETCHED, NEURON_CACHE),
            fetched_s=60,
        ),
        PhaseBudget(StartPhase.WARM_UP, None, _UNKNOWN, ()),
    ),
}
"""The images whose start takes minutes."""


def known_seconds(image: Image, *, pull: bool, artifacts: bool = False) -> float:
    """Return what the phases with a number take together; with or without the pull of the image."""
    rows = (row for row in BUDGETS[image] if pull or row.phase is not StartPhase.PULL)
    return sum(row.takes_s(artifacts=artifacts) for row in rows)


LEAST_READY_S = 900
"""What a host's containers have to be ready in where they may ask a hub, and nothing longer is known."""
LEAST_READY_FETCHED_S = 480
"""The same where all that they start from is on the disk: no hub is waited for and nothing compiled. ASSUMED."""
UNKNOWN_SHARE = 2
"""A budget is twice what is known: fetching and warming up are known of few engines, and of other models than ours."""
SILENCE_S = {False: 900, True: 600}
"""What a host may be silent for before its group gives it up, without artifacts and with them: twice the longest step
that sends no heartbeat, the pull of one image or the copy of its weights."""


@dataclass(frozen=True)
class StartBudget:
    """How long the host of a fleet may take to start.

    Attributes:
        ready_s: From the start of its containers until all are ready, whole minutes; a host that is not is given up.
        silence_s: From one heartbeat to the next.
    """

    ready_s: int
    silence_s: int


def start_budget(images: Iterable[Image], *, artifacts: bool = False) -> StartBudget:
    """Return the budget of hosts that run these images.

    Args:
        artifacts: Whether weights and compiled programs are on the disk before an engine starts.
    """
    known = max(
        (known_seconds(image, pull=False, artifacts=artifacts) for image in images if image in BUDGETS), default=0
    )
    least = LEAST_READY_FETCHED_S if artifacts else LEAST_READY_S
    return StartBudget(max(least, math.ceil(UNKNOWN_SHARE * known / 60) * 60), SILENCE_S[artifacts])


def table() -> str:
    """Return the budgets as a Markdown table."""
    head = ("Image", "Phase", "First start, s", "With `artifacts`, s", "Whose number", "Lever", "Where")
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for image, rows in BUDGETS.items():
        for row in rows:
            seconds = "?" if row.seconds is None else f"{row.seconds:g}"
            fetched = seconds if row.fetched_s is None else f"{row.fetched_s:g}"
            levers = "; ".join(lever.what for lever in row.levers) or "-"
            where = ", ".join(f"`{lever.shows_as}` in {lever.wired_in}" for lever in row.levers) or "-"
            lines.append(f"| {image} | {row.phase} | {seconds} | {fetched} | {row.source} | {levers} | {where} |")
        known = " | ".join(f"{known_seconds(image, pull=True, artifacts=each):g}" for each in (False, True))
        lines.append(f"| {image} | **known, in all** | {known} | | | |")
    return "\n".join(lines)
