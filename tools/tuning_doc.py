"""Generates the tables in docs/tuning.md from voice_blueprint.engines.sizing: ``python -m tools.tuning_doc``."""

from collections.abc import Callable
from pathlib import Path

from tools import doc_tables
from tools.doc_tables import format_table
from voice_blueprint import catalog
from voice_blueprint.catalog.inference import ModelArchitecture
from voice_blueprint.engines.sizing.defaults import select_default_scheduler_limits
from voice_blueprint.engines.sizing.layouts import CELL_LAYOUT_NAME, EngineRequirements, Layout, evaluate_layouts
from voice_blueprint.engines.sizing.memory import calculate_cross_attention_bytes, calculate_kv_bytes_per_token
from voice_blueprint.engines.sizing.profiles import ProfileComparison, build_profile_table, create_batching_variants
from voice_blueprint.engines.sizing.tts import PUBLISHED_OPERATING_POINTS
from voice_blueprint.file.model.serving import KvCacheType, Load

DOCUMENT_PATH = Path(__file__).parents[1] / "docs" / "tuning.md"

SEED_SESSIONS_PER_NODE = 500
"""Number of sessions per node that the seed documents claim."""

SEED_GPU = "A100-80"


def render_document(text: str) -> str:
    """Return the text of the document with all tables regenerated."""
    return doc_tables.render_tables(text, TABLE_FORMATTER_BY_NAME)


def main() -> None:
    """Regenerate the tables of the document."""
    DOCUMENT_PATH.write_text(render_document(DOCUMENT_PATH.read_text(encoding="utf-8")), encoding="utf-8")


def _format_kv_table() -> str:
    rows = [
        (
            model.name,
            f"{model.layers}, {model.kv_heads}, {model.head_dim}",
            f"{calculate_kv_bytes_per_token(model):,}",
            f"{calculate_kv_bytes_per_token(model, KvCacheType.FP8):,}",
            f"{calculate_cross_attention_bytes(model) / 1e6:.0f} MB"
            if model.architecture is ModelArchitecture.ENCODER_DECODER
            else "-",
        )
        for model in catalog.models().values()
    ]
    headings = ("model", "layers, KV heads, head size", "bf16 B/token", "FP8 B/token", "cross-attention per session")
    return format_table(headings, rows)


def _format_profile_table() -> str:
    headings = (
        "model",
        "GPUs",
        "KV tokens",
        "baseline: seqs / step tokens",
        "sessions",
        "tuned: seqs / step tokens / graphs / in flight",
        "sessions",
        "bound by",
    )
    return format_table(headings, [_format_profile_cells(row) for row in build_profile_table()])


def _format_profile_cells(row: ProfileComparison) -> tuple[str, ...]:
    gpus = f"{row.tensor_parallel} x {row.gpu}"
    if row.baseline is None or row.tuned is None:
        reason = row.refusal.arithmetic if row.refusal else ""
        return row.model, gpus, "-", "-", "-", "-", "-", f"refused: {reason}"
    defaults, tuned = select_default_scheduler_limits(catalog.gpus()[row.gpu]), row.tuned
    settings = (
        tuned.max_num_seqs,
        tuned.max_num_batched_tokens,
        len(tuned.cudagraph_capture_sizes),
        tuned.max_queued_requests,
    )
    return (
        row.model,
        gpus,
        f"{tuned.kv_cache_tokens:,}",
        f"{defaults.max_num_seqs} / {defaults.max_num_batched_tokens}",
        str(row.baseline.sessions),
        " / ".join(map(str, settings)),
        str(tuned.sessions),
        tuned.limit.value,
    )


def _format_pair_table() -> str:
    row = next(row for row in build_profile_table() if (row.model, row.gpu) == ("qwen3-8b", "A100-80"))
    if row.tuned is None:
        raise LookupError("qwen3-8b does not fit an A100-80")
    control, treatment = create_batching_variants(row.tuned)
    setting_names = ("max_num_seqs", "max_num_batched_tokens", "block_size")
    rows = [(f"`{name}`", *(str(getattr(side, name)) for side in (control, treatment))) for name in setting_names]
    return format_table(("knob", "control", "treatment"), rows)


def _format_sessions_table() -> str:
    request = EngineRequirements(Load(sessions=SEED_SESSIONS_PER_NODE, session_tokens=1500, context_tokens=16384))
    sizes = [size for size in catalog.vm_sizes().values() if size.gpu == SEED_GPU]
    rows = [
        _format_session_cells(name, layout)
        for name in ("voxtral-small-24b", "qwen3-8b", "qwen2.5-7b-instruct")
        for size in sizes
        for layout in evaluate_layouts(catalog.models()[name], catalog.gpus()[SEED_GPU], size, request, region="")
        if isinstance(layout, Layout)
    ]
    return format_table(("model", "node", "layout", "sessions/node", "longest session of which 500 fit"), rows)


def _format_session_cells(model: str, layout: Layout) -> tuple[str, ...]:
    tokens = layout.engine.kv_cache_tokens * layout.replicas_per_node // SEED_SESSIONS_PER_NODE
    emphasis = "**" if layout.sessions_per_node >= SEED_SESSIONS_PER_NODE else ""
    size = layout.vm_size.removeprefix("Standard_")
    name = "cell" if layout.name == CELL_LAYOUT_NAME else layout.name
    return model, size, name, f"{emphasis}{layout.sessions_per_node}{emphasis}", f"{tokens:,} tokens"


def _format_tts_table() -> str:
    rows = [
        (str(p.concurrency), f"{p.first_audio_ms:g} ms", f"{p.real_time_factor:g}", f"{p.chars_per_s:g}")
        for p in PUBLISHED_OPERATING_POINTS
    ]
    return format_table(("requests at a time", "first audio", "real-time factor", "characters/s"), rows)


TABLE_FORMATTER_BY_NAME: dict[str, Callable[[], str]] = {
    "kv-bytes": _format_kv_table,
    "profiles": _format_profile_table,
    "ab-pair": _format_pair_table,
    "five-hundred": _format_sessions_table,
    "tts": _format_tts_table,
}

if __name__ == "__main__":
    main()
