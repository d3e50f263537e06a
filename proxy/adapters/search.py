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
from collections.abc import Sequence
from heapq import nsmallest

from proxy.cache import Lru, Memory
from proxy.core.text.words import spaced, terms_of
from proxy.errors import SearchUnavailable
from proxy.ports import Passage

MOST_PASSAGES = 20_000
"""Of one search; of more, the newest are searched."""
_SCHEMA = (
    "CREATE VIRTUAL TABLE passages USING fts5"
    "(words, content='', tokenize='porter unicode61 remove_diacritics 2')"
)
_QUERY = "SELECT rowid, rank FROM passages WHERE passages MATCH ?"
_SIZE = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
_ROW_BYTES = 200
"""What is kept of a passage beside the database: its key, and its row."""
_SHELF_BYTES = 100_000
"""Of an index without any passage."""


class _Shelf:
    """One index; one search at a time."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._lock = threading.Lock()
        self._rows: dict[bytes, int] = {}
        self._database = database
        self.bytes = _SHELF_BYTES
        """What it takes."""

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
            (pages,) = self._database.execute(_SIZE).fetchone()
            self.bytes = _SHELF_BYTES + pages + _ROW_BYTES * len(self._rows)
        hits = ((found[row], index) for index, row in enumerate(rows) if row in found)
        return [index for _, index in nsmallest(most, hits)]

    def __del__(self) -> None:
        """Once nobody searches it, nor keeps it."""
        self._database.close()


def _open() -> sqlite3.Connection:
    database = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
    database.execute(_SCHEMA)
    return database


def _storable(text: str) -> str:
    """Text that UTF-8 can say and SQLite reads to its end."""
    return text.encode("utf-8", "replace").decode().replace("\0", " ")


class SqliteSearch:
    """A `proxy.ports.Search`, whose shelves are kept in ``memory`` while there is room for them."""

    def __init__(self, memory: Memory | None = None) -> None:
        self._shelves: Lru[str, _Shelf] = Lru(memory or Memory(), lambda shelf: shelf.bytes)

    async def search(self, shelf: str, passages: Sequence[Passage], query: str, most: int) -> list[int]:
        """As the port says. Where SQLite was built without FTS5, SearchUnavailable."""
        terms = terms_of(query)
        if not passages or not terms:
            return []
        skipped = max(len(passages) - MOST_PASSAGES, 0)
        any_term = " OR ".join('"' + _storable(term).replace('"', '""') + '"' for term in terms)
        try:
            index = self._shelves.get_or_make(shelf, lambda: _Shelf(_open()))
            found = await asyncio.to_thread(index.search, passages[skipped:], any_term, most)
        except sqlite3.Error as error:
            self._shelves.drop(shelf)
            raise SearchUnavailable from error
        self._shelves.put(shelf, index)  # it weighs more than it did
        return [skipped + place for place in found]

    async def aclose(self) -> None:
        self._shelves.clear()
