"""Search terms of a question, and texts prepared for an index that splits them at white space."""

import re
import unicodedata

from proxy.core.text.lexicon.words import FUNCTION_WORDS, LIGHT_WORDS, UNSPACED, WORDS_OF_OCCASION

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
