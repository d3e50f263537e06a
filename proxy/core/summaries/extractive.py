"""A summary made by code, if no model's summary can be trusted: the most important sentences, quoted.

Sentences are quoted literally and in order, each after its speaker with a verb in the past tense. So nothing
is made up, and no order gains authority: a tool's words stay a tool's words.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from proxy.core.conversation.messages import HEAD_ROLES, TOOL_ROLES
from proxy.core.extraction.facts import facts_in
from proxy.core.extraction.reading import BINDS, strength_of
from proxy.core.text.cutting import start_of
from proxy.core.text.lexicon.rules import CHANGES, DECIDES, WITHDRAWS
from proxy.core.text.lexicon.words import COURTESY, KEYWORDS
from proxy.core.text.words import sentences_in, words_of

EARLIER = "summary"
"""The role of an earlier summary."""
_LONGEST = 240
_SHORTEST = 12
_MOST = 2_000
"""Maximal number of sentences that are weighed; of more, users' rules come first, then all else of users."""
_FACTS = 3
"""Maximal number of exact values in a sentence that count for its weight."""
_WORDS = 8
"""Words of content that make a sentence worth reading; an exclamation has one or two."""
_SIZE = 0.3
"""Power of a sentence's tokens by which its weight is divided: a short fact costs little room."""
_DIGIT = re.compile(r"\d")
_VOICES: Mapping[str, tuple[str, str, str, str, str]] = {
    "en": ("user said", "assistant said", "tool returned", "system said", "earlier"),
    "de": ("Nutzer sagte", "Assistent sagte", "Werkzeug lieferte", "System sagte", "früher"),
    "fr": ("l'utilisateur a dit", "l'assistant a dit", "l'outil a renvoyé", "le système a dit", "plus tôt"),
    "es": (
        "el usuario dijo",
        "el asistente dijo",
        "la herramienta devolvió",
        "el sistema dijo",
        "anteriormente",
    ),
    "ja": ("ユーザーの発言", "アシスタントの発言", "ツールの結果", "システムの発言", "それ以前"),
    "zh": ("用户说过", "助手说过", "工具返回了", "系统说过", "更早"),
}
_USER, _ASSISTANT, _TOOL, _SYSTEM, _EARLIER = range(5)
_BINDING = (_USER, _SYSTEM, _EARLIER)
"""The voices whose rules bind."""
_ROLES = {
    name: role
    for voices in _VOICES.values()
    for name, role in zip(voices, ("user", "assistant", "tool", "system"), strict=False)
}
_WORTH = (0.5, 0.3, 0.1, 0.4, 0.6)
"""Base weight of a sentence by its voice."""
_MARKS = re.compile(r'["“”\x00-\x1f\x7f]')
_QUOTED_LINE = re.compile(r'^(?P<voice>[^"\n]{2,40}): "(?P<text>[^"\n]*)"$')


class Sentence(NamedTuple):
    """A sentence that may be chosen."""

    text: str
    role: str
    """Who said it."""
    number: int
    """Of the text that it is in."""


def extractive_summary(
    texts: Sequence[tuple[str, str]], room: int, count: Callable[[str], int], language: str = "en"
) -> str:
    """Return the most important sentences of ``texts`` (pairs of role and text) in ``room`` counted tokens.

    Empty if no sentence fits.
    """
    voices = _VOICES[language]
    sentences = list[Sentence]()
    expanded = [
        each for role, text in texts for each in (_voiced(text) if role == EARLIER else [(role, text)])
    ]
    for number, (role, text) in enumerate(expanded):
        plain = (" ".join(_MARKS.sub(" ", sentence).split()) for sentence in sentences_in(text))
        for sentence in plain:
            if len(sentence) >= _SHORTEST or (role == "user" and sentence) or _DIGIT.search(sentence):
                sentences.append(Sentence(start_of(sentence, _LONGEST), role, number))

    def quoted(sentence: Sentence) -> str:
        return f'{voices[_voice(sentence.role)]}: "{sentence.text}"'

    return "\n".join(map(quoted, most_important(sentences, room, lambda each: count(quoted(each)))))


def most_important(
    sentences: Sequence[Sentence],
    room: int,
    size: Callable[[Sentence], int],
    label: Callable[[str], int] = lambda _: 1,
) -> list[Sentence]:
    """Return the most important sentences that fit into ``room`` counted tokens, in order.

    What one speaker said several times stands where it was said last, so that it is not taken for outdated.
    ``size``: counted tokens of one; ``label``: by role, of what stands once before all of a text. A space or
    a line end between two counts as one.
    """
    newest = dict[tuple[str, str], Sentence]()
    for each in sentences:
        newest.pop((each.role, each.text), None)
        newest[each.role, each.text] = each
    last = max(sentences[-1].number, 1) if sentences else 1
    once = [*newest.values()]
    if len(once) > _MOST:
        ranks = [(_voice(each.role) in _BINDING, _strength(each), _worth(each, last)) for each in once]
        most = sorted(range(len(once)), key=ranks.__getitem__)[-_MOST:]
        once = [once[place] for place in sorted(most)]
    sizes = [size(each) + label(each.role) for each in once]
    weights = [_weight(each, last) / tokens**_SIZE for each, tokens in zip(once, sizes, strict=True)]
    chosen, labelled = list[int](), set[int]()
    for place in sorted(range(len(once)), key=lambda each: -weights[each]):
        each = once[place]
        tokens = sizes[place] - (label(each.role) - 1 if each.number in labelled else 0)
        if tokens <= room:
            room -= tokens
            chosen.append(place)
            labelled.add(each.number)
    return [once[place] for place in sorted(chosen)]


def _strength(sentence: Sentence) -> int:
    """How firmly a sentence binds; read with its courtesies, as what somebody likes may be a rule."""
    return strength_of(sentence.text) if _voice(sentence.role) in _BINDING else 0


def _worth(sentence: Sentence, last: int) -> float:
    """The weight of a sentence that no word of it is read for: who says it, how late, and any number."""
    number = 0.3 if _DIGIT.search(sentence.text) else 0.0
    return _WORTH[_voice(sentence.role)] + 0.1 * sentence.number / last + number


def _weight(sentence: Sentence, last: int) -> float:
    """The weight of a sentence with its rules, exact values, and words of content beside courtesies.

    A correction weighs more than what it corrects: read alone, that would be told as if it still held.
    """
    text, voice = COURTESY.sub(" ", sentence.text), _voice(sentence.role)
    strength = _strength(sentence)
    facts = min(len(facts_in(text)), _FACTS)
    may_change = strength >= BINDS or (voice in _BINDING and facts)
    change = 0.4 if may_change and (CHANGES.search(text) or WITHDRAWS.search(text)) else 0.0
    exact = 0.3 if facts and not _DIGIT.search(sentence.text) else 0.0
    keyword = DECIDES.search(text) or any(word in text.lower() for word in KEYWORDS)
    words = min(len(words_of(text)) / _WORDS, 1.0)
    content = 0.2 * strength + change + 0.1 * facts + 0.15 * bool(keyword) + 0.5 * words
    return _worth(sentence, last) + exact + content


def _voice(role: str) -> int:
    if role in TOOL_ROLES or role in HEAD_ROLES:
        return _TOOL if role in TOOL_ROLES else _SYSTEM
    return {"user": _USER, EARLIER: _EARLIER}.get(role, _ASSISTANT)


def of_users(summary: str) -> str:
    """Return an earlier summary without quotes of tools and assistants: what may be ascribed to users."""
    return "\n".join(text for role, text in _voiced(summary) if role not in ("assistant", "tool"))


def _voiced(summary: str) -> Iterator[tuple[str, str]]:
    """Yield role and text of an earlier summary's lines; extractive ones get their original role."""
    for line in summary.splitlines():
        quoted = _QUOTED_LINE.match(line)
        role = _ROLES.get(quoted["voice"]) if quoted else None
        yield (role, quoted["text"]) if quoted and role else (EARLIER, line)
