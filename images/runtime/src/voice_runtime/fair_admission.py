"""Capacity for unauthenticated clients, which is separate from that of callers and shared fairly between sources.

A caller's resources are reserved after authentication. Until then, a client waits here, for a limited time and with a
limited number of others, as with sshd's ``LoginGraceTime`` and ``MaxStartups``. A new client above that number is not
refused. Instead, the source with the most clients loses its oldest client. A caller who authenticates immediately is
therefore admitted, regardless of how many connections others have open.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Hashable
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)


class SourceLimitedSet(Generic[Item]):
    """A set of limited size, in which each item has a source.

    Args:
        limit: Maximum number of items.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sources: dict[Item, str] = {}
        # Items by source, in the order of arrival, which dictionaries keep.
        self._items: defaultdict[str, dict[Item, None]] = defaultdict(dict)

    def __len__(self) -> int:
        return len(self._sources)

    def __contains__(self, item: Item) -> bool:
        return item in self._sources

    def add(self, item: Item, source: str) -> Item | None:
        """Add an item, and return the item that was removed to make space, if any.

        Above the limit, the source with the most items loses its oldest item.
        """
        removed = None
        if len(self._sources) >= self._limit:
            busiest = max(self._items, key=lambda each: len(self._items[each]))
            removed = next(iter(self._items[busiest]))
            self.discard(removed)
        self._sources[item] = source
        self._items[source][item] = None
        return removed

    def pop(self) -> Item | None:
        """Remove and return the oldest item of the next source, or ``None`` if the set is empty.

        The sources take turns.
        """
        if not self._items:
            return None
        source = next(iter(self._items))
        items = self._items.pop(source)
        item = next(iter(items))
        del items[item], self._sources[item]
        if items:
            self._items[source] = items  # move this source after the other sources
        return item

    def discard(self, item: Item) -> None:
        """Remove an item if it is present."""
        source = self._sources.pop(item, None)
        if source is not None:
            del self._items[source][item]
            if not self._items[source]:
                del self._items[source]


class FairAdmissionController:
    """The clients of a process that wait for their authentication.

    Args:
        limit: Maximum number of clients.
        timeout_s: Timeout per client, seconds.
    """

    def __init__(self, limit: int, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._waiting: SourceLimitedSet[asyncio.Timeout] = SourceLimitedSet(limit)

    def __len__(self) -> int:
        return len(self._waiting)

    @contextlib.asynccontextmanager
    async def admit(self, source: str) -> AsyncIterator[None]:
        """Count a client as waiting for its authentication for the duration of the context.

        Args:
            source: Address of the client, or another key that distinguishes clients.

        Raises:
            TimeoutError: The context took too long, or the client was removed in favour of another client.
        """
        async with asyncio.timeout(self._timeout_s) as deadline:
            try:
                if removed := self._waiting.add(deadline, source):
                    # The timeout of the removed client may have expired in this iteration of the loop.
                    with contextlib.suppress(RuntimeError):
                        removed.reschedule(asyncio.get_running_loop().time())
                yield
            finally:
                self._waiting.discard(deadline)
