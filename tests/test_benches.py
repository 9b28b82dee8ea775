"""What the benches build from: they run by hand or at night, and a path that has moved would show there only."""

from bench.product import PROJECT, SCRIPT
from bench.vad.native import HERE
from bench.voice.shown import shown
from ops.call.session import Heard, Word


def test_what_benches_compile_lies_where_they_look() -> None:
    sources = [HERE / f"{name}.cpp" for name in ("decide", "frame_cost")]
    lists = [PROJECT / "tests/packages.txt", PROJECT / "timing/packages.txt", HERE / "packages.txt"]
    assert all(file.is_file() for file in (SCRIPT, PROJECT / "tests/install.sh", *sources, *lists))


def test_a_transcript_that_grows_is_judged_by_what_its_reader_saw() -> None:
    def heard(kind: str, text: str, certain: int, start_ms: int = 0, **more: bool) -> Heard:
        said = text.split()
        words = [Word(text=word, end_ms=start_ms + 100 * place) for place, word in enumerate(said, start=1)]
        committed = " ".join(said[:certain])
        end_ms = start_ms + 100 * (certain if kind == "final" else len(said))
        return Heard.model_validate(
            dict(kind=kind, text=text, start_ms=start_ms, end_ms=end_ms, committed=committed, words=words, **more)
        )

    events = [
        (0.5, heard("partial", "We can sea", 0)),
        (1.0, heard("partial", "We can see the answer", 2)),  # `sea` is withdrawn
        (1.5, heard("final", "We can see", 3, speech_final=False)),  # the rest is only moved
        (2.0, heard("partial", "the answer on", 2, start_ms=300)),
        (2.5, heard("final", "a answer on it", 4, start_ms=300)),  # `the` was committed
    ]
    screen = shown(events)
    assert (screen.withdrawn, screen.broken, screen.words) == (2, 1, 7)
    assert screen.commits_s == [0.9, 0.8, 1.2, 1.6, 1.5, 1.9, 1.8]
    assert screen.withdrawn_share == 2 / 9
