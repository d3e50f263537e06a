"""Full-text search with SQLite's FTS5, which comes with Python, in memory.

Results are ranked by BM25, with English endings removed by Porter's stemmer (https://sqlite.org/fts5.html).
Case and accents do not matter, and a term of several words matches these words side by side. Each shelf is a
database of its own, with an index but no text, and is cached: a second search only adds new passages. One
that is no longer among those searched has to leave the index, because other passages change the weights of
words, and it can leave only an index that knows its text. So where a passage is gone for the first time, for
example after a restore, on another branch or because a memory has changed, the index is built again, with the
texts; from then on those that are gone are removed. Where most are gone, to build it again costs less.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
import threading
import unicodedata
from collections.abc import Sequence
from heapq import nsmallest
from itertools import count

from proxy.cache import CacheMemory, Lru
from proxy.core.text.lexicon.words import FUNCTION_WORDS, LIGHT_WORDS, UNSPACED, WORDS_OF_OCCASION
from proxy.errors import SearchUnavailable
from proxy.ports import Passage

MOST_PASSAGES = 20_000
"""The most passages in one search; of more, only the newest are searched."""
_SCHEMA = "CREATE VIRTUAL TABLE passages USING fts5(words, {}tokenize='porter unicode61 remove_diacritics 2')"
_WITHOUT_TEXT = "content='', "
_ADD = "INSERT INTO passages (rowid, words) VALUES (?, ?)"
_REMOVE = "DELETE FROM passages WHERE rowid = ?"
_QUERY = "SELECT rowid, rank FROM passages WHERE passages MATCH ?"
_SIZE = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
_ROW_BYTES = 200
"""Estimated bytes of a passage outside the database: its key, and its row number."""
_SHELF_BYTES = 100_000
"""Estimated bytes of an empty index."""


class _Shelf:
    """One index. A lock allows one search at a time."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._lock = threading.Lock()
        self._rows: dict[bytes, int] = {}
        self._numbers = count(1)
        """Those of new rows."""
        self._database = database
        self._has_texts = False
        self.bytes = _SHELF_BYTES
        """Estimated memory in bytes."""

    def search(self, passages: Sequence[Passage], query: str, most: int) -> list[int]:
        """Return the indexes of the best passages, best first; equally good ones in their order."""
        wanted = {passage.key for passage in passages}
        with self._lock:
            gone = self._rows.keys() - wanted
            if gone and not (self._has_texts and 2 * len(gone) < len(self._rows)):
                self._database.close()
                self._rows, gone = {}, set[bytes]()
                self._database, self._has_texts = _open(), True
            rows = {key: row for key, row in self._rows.items() if key not in gone}
            with self._database as database:
                database.execute("BEGIN")  # each change by itself would take ten times as long
                database.executemany(_REMOVE, [(self._rows[key],) for key in gone])
                for passage in passages:
                    if passage.key not in rows:
                        rows[passage.key] = row = next(self._numbers)
                        database.execute(_ADD, (row, _storable(spaced(passage.read()))))
            self._rows = rows
            found = dict(self._database.execute(_QUERY, (query,)))
            (pages,) = self._database.execute(_SIZE).fetchone()
            self.bytes = _SHELF_BYTES + pages + _ROW_BYTES * len(rows)
        places = ((rows[passage.key], index) for index, passage in enumerate(passages))
        hits = ((found[row], index) for row, index in places if row in found)
        return [index for _, index in nsmallest(most, hits)]

    def __del__(self) -> None:
        """Close the database once no search and no cache refers to the shelf."""
        self._database.close()


def _open(option: str = "") -> sqlite3.Connection:
    database = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
    try:
        database.execute(_SCHEMA.format(option))
    except sqlite3.Error:
        database.close()
        raise
    return database


def _storable(text: str) -> str:
    """Replace characters that UTF-8 cannot encode, and NULs, at which SQLite would stop reading."""
    return text.encode("utf-8", "replace").decode().replace("\0", " ")


class SqliteSearch:
    """Implements `proxy.ports.Search`; its shelves are cached in ``memory`` while there is room."""

    def __init__(self, memory: CacheMemory | None = None) -> None:
        self._shelves: Lru[str, _Shelf] = Lru(memory or CacheMemory(), lambda shelf: shelf.bytes)

    async def search(self, shelf: str, passages: Sequence[Passage], query: str, most: int) -> list[int]:
        """Search as the port defines. Raises SearchUnavailable, for example if SQLite lacks FTS5."""
        terms = terms_of(query)
        if not passages or not terms:
            return []
        skipped = max(len(passages) - MOST_PASSAGES, 0)
        any_term = " OR ".join('"' + _storable(term).replace('"', '""') + '"' for term in terms)
        try:
            index = self._shelves.get_or_make(shelf, lambda: _Shelf(_open(_WITHOUT_TEXT)))
            found = await asyncio.to_thread(index.search, passages[skipped:], any_term, most)
        except sqlite3.Error as error:
            self._shelves.drop(shelf)
            raise SearchUnavailable from error
        self._shelves.put(shelf, index)  # its size may have grown
        return [skipped + place for place in found]

    async def aclose(self) -> None:
        self._shelves.clear()


# --- the terms of a question, and texts for an index that splits them at white space ---


_STOP_IN_QUESTIONS = FUNCTION_WORDS | LIGHT_WORDS | WORDS_OF_OCCASION
MOST_TERMS = 64
_CHARACTER = re.compile(f"([{UNSPACED}])")
_RUN = re.compile(rf"[{UNSPACED}]+|[^\W{UNSPACED}]+")
_CHUNK = re.compile(r"\w+(?:[-_./:@#]\w+)*")


def spaced(text: str) -> str:
    """Prepare a text for the index: put spaces around characters of scripts that are written without them."""
    return _CHARACTER.sub(r" \1 ", unicodedata.normalize("NFKC", text))


def terms_of(query: str) -> list[str]:
    """The search terms of a query, any of which may match; one of several words is matched as a phrase."""
    chunks: list[str] = _CHUNK.findall(unicodedata.normalize("NFKC", query).lower())
    terms: list[str] = []
    for chunk in chunks:
        runs: list[str] = _RUN.findall(chunk)
        for run in runs:
            pairs = range(max(len(run) - 1, 1)) if _CHARACTER.match(run) else ()
            terms += [" ".join(run[at : at + 2]) for at in pairs] or [run]
        if len(runs) > 1 and any(map(str.isdigit, chunk)) and not _CHARACTER.search(chunk):
            terms.append(" ".join(runs))  # it looks like an identifier, so all of it is a phrase too
    found = [*dict.fromkeys(terms)]
    telling = [term for term in found if term not in _STOP_IN_QUESTIONS]
    return (telling or found)[:MOST_TERMS]
