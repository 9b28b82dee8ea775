"""What the benches build from: they run by hand or at night, and a path that has moved would show there only."""

from bench.product import PROJECT, SCRIPT
from bench.vad.native import HERE


def test_what_benches_compile_lies_where_they_look() -> None:
    sources = [HERE / f"{name}.cpp" for name in ("decide", "frame_cost")]
    lists = [PROJECT / "tests/packages.txt", PROJECT / "timing/packages.txt", HERE / "packages.txt"]
    assert all(file.is_file() for file in (SCRIPT, PROJECT / "tests/install.sh", *sources, *lists))
