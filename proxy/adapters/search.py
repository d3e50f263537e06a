"""Search by words over SQLite's full-text index (FTS5), in memory: it comes with Python.

Ranked by BM25, with English endings cut by Porter's stemmer (https://sqlite.org/fts5.html). Case and accents
do not matter, and a term of several words is found where these stand side by side. A shelf is a database of
its own that holds an index and no text. It is kept while it is used: a second search adds what is new. Should
it hold anything that is not asked about, as after a restore or on another branch, it is made anew, because
what else is there changes a word's weight.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Sequence
from heapq import nsmallest

from proxy.core.text.words import spaced, terms_of
from proxy.errors import SearchUnavailable
from proxy.ports import Passage

SHELVES = 64
"""Databases that are kept."""
MOST_PASSAGES = 20_000
"""Of one search; of more, the newest are searched."""
_SCHEMA = (
    "CREATE VIRTUAL TABLE passages USING fts5"
    "(words, content='', tokenize='porter unicode61 remove_diacritics 2')"
)
_QUERY = "SELECT rowid, rank FROM passages WHERE passages MATCH ?"


class _Shelf:
    """One index; one search at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: dict[bytes, int] = {}
        self._database = _open()

    def search(self, passages: Sequence[Passage], query: str, most: int) -> list[int]:
        """Indexes of passages, best first; of two that are equal the first."""
        wanted = {passage.key for passage in passages}
        with self._lock:
            if not self._rows.keys() <= wanted:
                self._database.close()
                self._database, self._rows = _open(), {}
            for passage in passages:
                if passage.key not in self._rows:
                    row, words = len(self._rows) + 1, _storable(spaced(passage.read()))
                    self._database.execute("INSERT INTO passages (rowid, words) VALUES (?, ?)", (row, words))
                    self._rows[passage.key] = row
            found = dict(self._database.execute(_QUERY, (query,)))
            rows = [self._rows[passage.key] for passage in passages]
        hits = ((found[row], index) for index, row in enumerate(rows) if row in found)
        return [index for _, index in nsmallest(most, hits)]

    def close(self) -> None:
        """Forget the index, once nobody searches it."""
        with self._lock:
            self._database.close()


def _open() -> sqlite3.Connection:
    database = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
    database.execute(_SCHEMA)
    return database


def _storable(text: str) -> str:
    """Text that UTF-8 can say and SQLite reads to its end."""
    return text.encode("utf-8", "replace").decode().replace("\0", " ")


class SqliteSearch:
    """A `proxy.ports.Search`, forgetting the shelf that was not used for longest."""

    def __init__(self, shelves: int = SHELVES) -> None:
        self._most = shelves
        self._shelves: OrderedDict[str, _Shelf] = OrderedDict()

    async def search(self, shelf: str, passages: Sequence[Passage], query: str, most: int) -> list[int]:
        """As the port says. Where SQLite was built without FTS5, SearchUnavailable."""
        terms = terms_of(query)
        if not passages or not terms:
            return []
        skipped = max(len(passages) - MOST_PASSAGES, 0)
        any_term = " OR ".join('"' + _storable(term).replace('"', '""') + '"' for term in terms)
        try:
            index = self._shelves.get(shelf) or _Shelf()
            self._shelves[shelf] = index
            self._shelves.move_to_end(shelf)
            if len(self._shelves) > self._most:
                await self._forget(next(iter(self._shelves)))
            found = await asyncio.to_thread(index.search, passages[skipped:], any_term, most)
        except sqlite3.Error as error:
            await self._forget(shelf)
            raise SearchUnavailable from error
        return [skipped + place for place in found]

    async def _forget(self, name: str) -> None:
        found = self._shelves.pop(name, None)
        if found is not None:
            await asyncio.to_thread(found.close)

    async def aclose(self) -> None:
        for name in list(self._shelves):
            await self._forget(name)
