"""Models with the architectures of deployed models and as few weights as possible, all of them random.

Run this module in the engines' own environment: ``.tools/engines/bin/python voice_sandbox/engines/tiny_models.py
FOLDER``. Engines load the models with ``--load-format dummy``, which creates the same weights in every process that
uses the same seed.
"""

import hashlib
import json
import sys
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, WhisperConfig, WhisperFeatureExtractor

MAX_CONTEXT_TOKENS = 32768
"""The maximum context length in a shipped file."""
HIDDEN_SIZE, HEADS, KV_HEADS, HEAD_DIM = 64, 4, 2, 32
"""A head has 32 dimensions, since vLLM's CPU attention has no kernel for 16."""
LAYER_COUNT = 2
TOKENIZER_TEXT = "hello world this is a small tokenizer for tests of engines"
CHAT_TEMPLATE = "{% for m in messages %}<|{{m.role}}|>{{m.content}}<|end|>{% endfor %}<|assistant|>"


def main(folder: Path) -> None:
    """Create all missing models."""
    program = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    for name, make in (("qwen", create_qwen), ("voxtral", create_voxtral), ("whisper", create_whisper)):
        ready = folder / name / ".ready"
        if not ready.exists() or ready.read_text(encoding="utf-8") != program:
            ready.parent.mkdir(parents=True, exist_ok=True)
            make(ready.parent)
            ready.write_text(program, encoding="utf-8")


def create_qwen(folder: Path) -> None:
    """Create ``Qwen3ForCausalLM``."""
    tokenizer = _create_byte_tokenizer(["<|end|>", "<|system|>", "<|user|>", "<|assistant|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    _write_json(
        folder / "tokenizer_config.json",
        tokenizer_class="PreTrainedTokenizerFast",
        eos_token="<|end|>",  # noqa: S106  no secret
        pad_token="<|end|>",  # noqa: S106
        chat_template=CHAT_TEMPLATE,
    )
    _write_json(
        folder / "config.json",
        architectures=["Qwen3ForCausalLM"],
        model_type="qwen3",
        hidden_size=HIDDEN_SIZE,
        intermediate_size=2 * HIDDEN_SIZE,
        num_hidden_layers=LAYER_COUNT,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        vocab_size=tokenizer.get_vocab_size(),
        max_position_embeddings=MAX_CONTEXT_TOKENS,
        rms_norm_eps=1e-6,
        rope_theta=1_000_000.0,
        hidden_act="silu",
        tie_word_embeddings=True,
        torch_dtype="bfloat16",
        bos_token_id=0,
        eos_token_id=0,
    )


def create_voxtral(folder: Path) -> None:
    """Create ``VoxtralForConditionalGeneration`` in Mistral's format, with mistral_common's own vocabulary."""
    tekken: dict[str, Any] = json.loads(
        (files("mistral_common") / "data/tekken_240911.json").read_text(encoding="utf-8")
    )
    tekken.pop("image", None)
    tekken["config"]["version"] = "v11"
    features = {"num_mel_bins": 128, "hop_length": 160, "window_size": 400}
    tekken["audio"] = {
        "sampling_rate": 16000,
        "frame_rate": 12.5,
        "audio_encoding_config": features,
        "chunk_length_s": 30.0,
    }
    tekken["special_tokens"] = [
        {"rank": rank, "token_str": token, "is_control": True}
        for rank, token in enumerate(_iter_mistral_control_tokens())
    ]
    (folder / "tekken.json").write_text(json.dumps(tekken), encoding="utf-8")
    encoder = {
        "audio_encoding_args": {"sampling_rate": 16000, **features},
        "dim": HIDDEN_SIZE,
        "n_layers": LAYER_COUNT,
        "head_dim": HIDDEN_SIZE // HEADS,
        "hidden_dim": 2 * HIDDEN_SIZE,
        "n_heads": HEADS,
        "vocab_size": 51866,
        "max_source_positions": 1500,
    }
    _write_json(
        folder / "params.json",
        dim=HIDDEN_SIZE,
        n_layers=LAYER_COUNT,
        head_dim=HEAD_DIM,
        hidden_dim=2 * HIDDEN_SIZE,
        n_heads=HEADS,
        n_kv_heads=KV_HEADS,
        norm_eps=1e-5,
        rope_theta=1e8,
        vocab_size=131072,
        max_position_embeddings=MAX_CONTEXT_TOKENS,
        max_seq_len=MAX_CONTEXT_TOKENS,
        multimodal={
            "whisper_model_args": {"encoder_args": encoder, "downsample_args": {"downsample_factor": 4}},
        },
    )


def create_whisper(folder: Path) -> None:
    """Create ``WhisperForConditionalGeneration``."""
    languages = ("en", "de", "fr")
    special = [
        "<|endoftext|>",
        "<|startoftranscript|>",
        *(f"<|{language}|>" for language in languages),
        "<|translate|>",
        "<|transcribe|>",
        "<|startoflm|>",
        "<|startofprev|>",
        "<|nospeech|>",
        "<|notimestamps|>",
        *(f"<|{step * 0.02:.2f}|>" for step in range(1501)),
    ]
    tokenizer = _create_byte_tokenizer([])
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in special])
    ids = {token: tokenizer.token_to_id(token) for token in special}
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=special[0],
        eos_token=special[0],
        unk_token=special[0],
        pad_token=special[0],
    )
    fast.save_pretrained(folder)
    WhisperFeatureExtractor(feature_size=80).save_pretrained(folder)
    config = WhisperConfig(
        vocab_size=tokenizer.get_vocab_size(),
        d_model=HIDDEN_SIZE,
        encoder_layers=LAYER_COUNT,
        decoder_layers=LAYER_COUNT,
        encoder_attention_heads=HIDDEN_SIZE // HEAD_DIM,
        decoder_attention_heads=HIDDEN_SIZE // HEAD_DIM,
        encoder_ffn_dim=2 * HIDDEN_SIZE,
        decoder_ffn_dim=2 * HIDDEN_SIZE,
        num_mel_bins=80,
        architectures=["WhisperForConditionalGeneration"],
        bos_token_id=ids[special[0]],
        eos_token_id=ids[special[0]],
        pad_token_id=ids[special[0]],
        decoder_start_token_id=ids["<|startoftranscript|>"],
    )
    config.save_pretrained(folder)
    for name in ("tokenizer_config.json", "preprocessor_config.json"):
        settings = json.loads((folder / name).read_text(encoding="utf-8")) | {"processor_class": "WhisperProcessor"}
        if name == "tokenizer_config.json":
            settings["tokenizer_class"] = "WhisperTokenizerFast"
        _write_json(folder / name, **settings)


def _create_byte_tokenizer(special: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=special, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())
    )
    tokenizer.train_from_iterator([TOKENIZER_TEXT] * 10, trainer)
    return tokenizer


def _iter_mistral_control_tokens() -> Iterable[str]:
    """Yield a thousand names. mistral_common's audio encoder looks up those with the ids 24, 25 and 34."""
    named = {
        0: "<unk>", 1: "<s>", 2: "</s>", 3: "[INST]", 4: "[/INST]", 5: "[AVAILABLE_TOOLS]", 6: "[/AVAILABLE_TOOLS]",
        7: "[TOOL_RESULTS]", 8: "[/TOOL_RESULTS]", 9: "[TOOL_CALLS]", 10: "[IMG]", 11: "<pad>", 12: "[IMG_BREAK]",
        13: "[IMG_END]", 14: "[PREFIX]", 15: "[MIDDLE]", 16: "[SUFFIX]", 17: "[SYSTEM_PROMPT]", 18: "[/SYSTEM_PROMPT]",
        19: "[TOOL_CONTENT]", 24: "[AUDIO]", 25: "[BEGIN_AUDIO]", 32: "[ARGS]", 33: "[CALL_ID]", 34: "[TRANSCRIBE]",
    }  # fmt: skip
    return (named.get(rank, f"<SPECIAL_{rank}>") for rank in range(1000))


def _write_json(file: Path, **values: object) -> None:
    file.write_text(json.dumps(values, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
