"""Converts the weights of a GGUF file for vLLM: ``weights.py FILE FOLDER``, in the engines' environment.

vLLM reads GGUF with a plug-in that needs CUDA; transformers dequantizes it on any machine.
"""

import json
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig


def main(file: Path, folder: Path) -> None:
    """Write the model, the tokenizer, and settings for greedy decoding, without which such a small model rambles."""
    source = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
    tokenizer = AutoTokenizer.from_pretrained(**source)
    config = GgufConfig(dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.bfloat16, quantization_config=config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    settings = folder / "generation_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text(encoding="utf-8")) | {"temperature": 0.0}), "utf-8")
    (folder / ".ready").touch()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
