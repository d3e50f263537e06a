"""Whether a sentence denies something, and what it says apart from that."""

from proxy.core.text.lexicon.remembering import ENDED, WITH_NEGATION
from proxy.core.text.lexicon.rules import NEGATION


def is_denied(text: str) -> bool:
    """Whether a sentence says that something is not so, or no longer so."""
    return bool(NEGATION.search(text) or ENDED.search(text))


def undenied(text: str) -> str:
    """Return what a sentence denies: without the negation and the words that go with it."""
    for pattern in (ENDED, NEGATION, WITH_NEGATION):
        text = pattern.sub(" ", text)
    return text
