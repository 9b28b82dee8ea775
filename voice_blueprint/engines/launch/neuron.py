"""Environment of Neuron containers: cores, and the cache of compiled programs."""

from dataclasses import dataclass

from voice_blueprint.catalog import Accelerator
from voice_blueprint.engines.launch.base import Launcher

CORES_PER_CHIP = {"Inferentia2": 2, "Trainium": 2}
"""Number of NeuronCore-v2 cores per chip, for the chips that our engine supports. Source:
https://awsdocs-neuron.readthedocs-hosted.com, "Neuron Architecture"."""


@dataclass(frozen=True)
class NeuronRuntime(Launcher):
    """Settings of the Neuron runtime and compiler.

    The image's entry point is the command. Variables follow the Neuron SDK's "Runtime configuration" and "NeuronX
    persistent cache".

    Attributes:
        cache_dir: Directory for compiled programs (NEFF files), which persists across restarts, since compiling takes
            minutes.
        first_core: First core of the process.
        core_count: Number of cores; a core can only be used by one process.
    """

    cache_dir: str
    core_count: int
    first_core: int = 0

    def build_command(self) -> tuple[str, ...]:
        """Return no arguments, since the image's entry point starts the engine."""
        return ()

    def build_environment(self) -> dict[str, str]:
        last = self.first_core + self.core_count - 1
        return {
            "NEURON_RT_VISIBLE_CORES": f"{self.first_core}-{last}" if self.core_count > 1 else str(last),
            "NEURON_COMPILE_CACHE_URL": f"{self.cache_dir}/neuron",
        }


def count_neuron_cores(accelerator: Accelerator) -> int:
    """Return the number of NeuronCores on a host.

    Raises:
        ValueError: The engine does not support the chip.
    """
    per_chip = CORES_PER_CHIP.get(accelerator.model)
    if per_chip is None:
        raise ValueError(
            f"our engine runs on {', '.join(CORES_PER_CHIP)}, not on {accelerator.model}: choose inf2 or trn1"
        )
    return per_chip * accelerator.count


def create_neuron_runtime(accelerator: Accelerator, cache_dir: str) -> NeuronRuntime:
    """Return the runtime of a process that uses all cores of a host.

    Raises:
        ValueError: The engine does not support the chip.
    """
    return NeuronRuntime(cache_dir, core_count=count_neuron_cores(accelerator))
