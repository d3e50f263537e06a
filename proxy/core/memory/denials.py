"""Whether a sentence denies something, and what it says apart from that."""

from proxy.core.text.lexicon.remembering import WITH_NEGATION
from proxy.core.text.lexicon.rules import NEGATION


def is_denied(text: str) -> bool:
    """Whether a sentence says that something is not so, or no longer so."""
    return NEGATION.search(text) is not None


def undenied(text: str) -> str:
    """Return what a sentence denies: without the negation, and the words that go with it."""
    return WITH_NEGATION.sub(" ", NEGATION.sub(" ", text))
