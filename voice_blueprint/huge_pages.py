"""Huge pages that the VAD data plane uses on a host.

The sizes are those of the program. ``images/vad-dataplane/tests/e2e/test_docker.py`` compares them with a running data
plane.
"""

from math import ceil

BYTES_PER_SESSION = 28 * 1024
"""Memory per session: jitter buffer, features, cipher (``pipeline/slot.hpp``)."""
BYTES_PER_QUEUE = 4 << 20
"""Memory per receive queue: its rings of chunks and commands (``pipeline/poller.hpp``)."""
VAD_BYTES_PER_QUEUE = 9 << 20
"""Memory for the VAD module per receive queue; twice as much while a module is replaced (``vad/module/vad.c``)."""
PACKET_BUFFER_BYTES_PER_QUEUE = 20 << 20
"""Memory for DPDK's packet buffers per receive queue: 8,192 of 2.4 KiB (``receive/dpdk.cpp``)."""
DPDK_BYTES = 8 << 20
"""Memory for DPDK itself."""


def calculate_huge_page_count(sessions: int, queues: int, size_mib: int) -> int:
    """Return the number of pages of ``size_mib`` MiB for a host's data plane. Each part starts on a new page."""
    page = size_mib << 20

    def count_pages(size: int) -> int:
        return ceil(size / page)

    each = count_pages(BYTES_PER_QUEUE) + 2 * count_pages(VAD_BYTES_PER_QUEUE)
    return (
        count_pages(sessions * BYTES_PER_SESSION)
        + queues * each
        + count_pages(queues * PACKET_BUFFER_BYTES_PER_QUEUE + DPDK_BYTES)
    )
