"""From a question to the words to look for, and from a text to words that can be found.

An index breaks text at white space and punctuation. Scripts that are written without spaces are therefore
given to it a character at a time, and asked for in pairs of characters that stand side by side.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

MOST_TERMS = 64
_UNSPACED = (
    # Thai, Lao, Burmese, Khmer; then Japanese, Chinese, Korean
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
    "\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
_CHARACTER = re.compile(f"([{_UNSPACED}])")
_RUN = re.compile(f"[{_UNSPACED}]+|[^\\W{_UNSPACED}]+")
_CHUNK = re.compile(r"\w+(?:[-_./:@#]\w+)*")
_FUNCTION_WORDS = frozenset(
    "a about after all also am an and any are as at be because been before being but by can could did do "
    "does doing during each few for from had has have having he her hers him his how i if in into is it "
    "its just me more most my no nor not of off on once only or other our out over own s same she should "
    "so some such t than that the their them then there these they this those through to too under until "
    "up very was we were what when where which while who whom whose why will with would you your aber als "
    "am an auch auf aus bei bin bis bist da das dass dem den der des die du durch ein eine einem einen "
    "einer eines er es für hat hatte habe haben ich ihm ihn ihr im in ist ja kann man mein mich mir mit "
    "nach nicht noch nur ob oder sein sich sie sind so um und uns unser vom von vor war waren warum was "
    "wann welche welcher welches wem wen wenn wer wie wir wird wo womit zu zum zur über au aux avec ce "
    "ces cette combien comment d dans de des du elle elles en est et il ils j je l la le les leur lui ma "
    "mais mes moi mon n ne nous où par pas pour pourquoi qu quand que quel quelle quelles quels qui quoi "
    "sa se ses son sur ta te tes toi ton tu un une vous à été était al con cual cuales cuando cuándo cuál "
    "cuáles cuánto cómo de del dónde donde el ella ellos en era es esta este fue ha hay la las lo los me "
    "mi muy nos o para pero por porque qué que quien quién se si sin sobre su sus te tu un una y ya".split()
)
"""Words of questions that say nothing of their subject, in English, German, French and Spanish."""


def spaced(text: str) -> str:
    """A text as an index reads it: characters of scripts without spaces stand apart."""
    return _CHARACTER.sub(r" \1 ", unicodedata.normalize("NFKC", text))


def terms_of(query: str) -> list[str]:
    """What to look for, any of it; a term of several words is looked for as it stands."""
    chunks: list[str] = _CHUNK.findall(unicodedata.normalize("NFKC", query).lower())
    found = list(dict.fromkeys(term for chunk in chunks for term in _terms_in(chunk)))
    telling = [term for term in found if term not in _FUNCTION_WORDS]
    return (telling or found)[:MOST_TERMS]


def _terms_in(chunk: str) -> Iterator[str]:
    """The words of a chunk; and, where it looks like an identifier, the whole of it."""
    runs: list[str] = _RUN.findall(chunk)
    for run in runs:
        if not _CHARACTER.match(run):
            yield run
        else:
            yield from (" ".join(run[at : at + 2]) for at in range(max(len(run) - 1, 1)))
    if len(runs) > 1 and any(each.isdigit() for each in chunk) and not _CHARACTER.search(chunk):
        yield " ".join(runs)
