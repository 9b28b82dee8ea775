"""Environment of the Neuron containers: which cores, where compiled programs are kept."""

from dataclasses import dataclass

from blueprint.catalog import Accelerator
from blueprint.engines.launch.base import Launcher

CORES_PER_CHIP = {"Inferentia2": 2, "Trainium": 2}
"""NeuronCore-v2 of each chip that our engine runs on: https://awsdocs-neuron.readthedocs-hosted.com, "Neuron
Architecture"."""


@dataclass(frozen=True)
class NeuronRuntime(Launcher):
    """What the Neuron runtime and compiler are told.

    The command is the image's own. Variables as in the Neuron SDK's "Runtime configuration" and "NeuronX persistent
    cache".

    Attributes:
        cache_dir: Directory for compiled programs (NEFF files), kept over restarts: compiling takes minutes.
        first_core: First core of the process.
        cores: Cores of the process; a core belongs to one process alone.
    """

    cache_dir: str
    cores: int
    first_core: int = 0

    def command(self) -> tuple[str, ...]:
        """Return no arguments: the image's entry point starts the engine."""
        return ()

    def environment(self) -> dict[str, str]:
        last = self.first_core + self.cores - 1
        return {
            "NEURON_RT_VISIBLE_CORES": f"{self.first_core}-{last}" if self.cores > 1 else str(last),
            "NEURON_COMPILE_CACHE_URL": f"{self.cache_dir}/neuron",
        }


def cores_of(accelerator: Accelerator) -> int:
    """Return the NeuronCores of a host.

    Raises:
        ValueError: The engine does not run on the chip.
    """
    per_chip = CORES_PER_CHIP.get(accelerator.model)
    if per_chip is None:
        raise ValueError(
            f"our engine runs on {', '.join(CORES_PER_CHIP)}, not on {accelerator.model}: choose inf2 or trn1"
        )
    return per_chip * accelerator.count


def neuron_runtime(accelerator: Accelerator, cache_dir: str) -> NeuronRuntime:
    """Return the runtime of a process that has all cores of a host.

    Raises:
        ValueError: The engine does not run on the chip.
    """
    return NeuronRuntime(cache_dir, cores=cores_of(accelerator))
