"""Built-in scenarios with the published figures of Voxtral TTS, which are printed next to the measured ones.

Mistral AI, "Voxtral TTS", arXiv 2603.25551, tables 7 and 8: one H200, vLLM-Omni, texts of 500 characters, reference
voice of 10 s. The paper's RTF and char/s are consistent if RTF is the time of a whole request divided by the duration
of its audio, as here: 500 characters / 119.14 char/s = 4.2 s, which is 0.103 of 41 s of speech. The paper's latency is
interpreted as the time to the first audio, and printed next to the median, although the paper does not specify whether
it is a mean or a median.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from voice_ops.loadtest.load import ClosedLoopLoad, Load
from voice_ops.loadtest.summary import Slo

PUBLICATION = "arXiv 2603.25551, tables 7 and 8, one H200"
TEXT_LENGTH_CHARS = 500
REFERENCE_DURATION_S = 10

PublishedFigures = Mapping[str, float]
"""Published figures by the key of a row in the table of results."""


@dataclass(frozen=True)
class Scenario:
    """A load on the speech API with published results."""

    title: str
    concurrencies: tuple[int, ...]
    needs_baseline: bool
    published_figures: Mapping[str, Mapping[int, PublishedFigures]]
    """Figures by endpoint name and by concurrency."""
    slo: Slo

    @property
    def endpoint_names(self) -> tuple[str, str]:
        """Labels of the endpoint and its baseline."""
        return "cuda-graph", "eager"

    def find_published_figures(self, endpoint: str, load: Load) -> PublishedFigures:
        """Return the published figures of an endpoint for a load level."""
        if not isinstance(load, ClosedLoopLoad):
            return {}
        return self.published_figures.get(endpoint, {}).get(load.concurrency, {})


SCENARIOS = {
    "table-7": Scenario(
        title="Table 7: CUDA graphs against eager mode",
        concurrencies=(1,),
        needs_baseline=True,
        published_figures={"eager": {1: {"first": 133, "rtf": 0.258}}, "cuda-graph": {1: {"first": 70, "rtf": 0.103}}},
        slo={},
    ),
    "table-8": Scenario(
        title="Table 8: serving performance by concurrency",
        concurrencies=(1, 16, 32),
        needs_baseline=False,
        published_figures={
            "cuda-graph": {
                1: {"first": 70, "rtf": 0.103, "chars": 119.14, "wait": 0},
                16: {"first": 331, "rtf": 0.237, "chars": 879.11, "wait": 0},
                32: {"first": 552, "rtf": 0.302, "chars": 1430.78, "wait": 0},
            }
        },
        slo={"first": 1000, "starved": 0},
    ),
}
