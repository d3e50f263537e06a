"""A summary made by code, if no model's summary can be trusted: the most important sentences, quoted.

Sentences are quoted literally and in order, each after its speaker with a verb in the past tense. So nothing
is made up, and no order gains authority: a tool's words stay a tool's words.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from proxy.core.conversation.messages import HEAD_ROLES, TOOL_ROLES
from proxy.core.extraction.facts import facts_in
from proxy.core.extraction.reading import strength_of
from proxy.core.text.cutting import start_of
from proxy.core.text.lexicon.words import KEYWORDS
from proxy.core.text.words import sentences_in

EARLIER = "summary"
"""The role of an earlier summary."""
_LONGEST = 240
_SHORTEST = 12
_MOST = 400
"""Maximal number of sentences that are weighed; of more, the first and the last half of that."""
_FACTS = 3
"""Maximal number of exact values in a sentence that count for its weight."""
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
_ROLES = {
    name: role
    for voices in _VOICES.values()
    for name, role in zip(voices, ("user", "assistant", "tool", "system"), strict=False)
}
_WORTH = (0.5, 0.3, 0.1, 0.4, 0.6)
"""Base weight of a sentence by its voice."""
_MARKS = re.compile(r'["“”\x00-\x1f\x7f]')
_QUOTED_LINE = re.compile(r'^(?P<voice>[^"\n]{2,40}): "(?P<text>[^"\n]*)"$')


def extractive_summary(
    texts: Sequence[tuple[str, str]], room: int, count: Callable[[str], int], language: str = "en"
) -> str:
    """Return the most important sentences of ``texts`` (pairs of role and text) in ``room`` counted tokens.

    Empty if no sentence fits.
    """
    chosen: list[tuple[int, str]] = []
    found = list(_weighed(texts, _VOICES[language]))
    half = _MOST // 2
    weighed = found if len(found) <= _MOST else [*found[:half], *found[-half:]]
    for place, line, _ in sorted(weighed, key=lambda each: (-each[2], each[0])):
        size = count(line) + 1
        if size <= room:
            room -= size
            chosen.append((place, line))
    return "\n".join(line for _, line in sorted(chosen))


def of_users(summary: str) -> str:
    """Return an earlier summary without quotes of tools and assistants: what may be ascribed to users."""
    return "\n".join(text for role, text in _voiced(summary) if role not in ("assistant", "tool"))


def _voiced(summary: str) -> Iterator[tuple[str, str]]:
    """Yield role and text of an earlier summary's lines; extractive ones get their original role."""
    for line in summary.splitlines():
        quoted = _QUOTED_LINE.match(line)
        role = _ROLES.get(quoted["voice"]) if quoted else None
        yield (role, quoted["text"]) if quoted and role else (EARLIER, line)


def _weighed(texts: Sequence[tuple[str, str]], voices: Sequence[str]) -> Iterator[tuple[int, str, float]]:
    """Yield the sentences that may be quoted: their places, the lines that quote them, and their weights."""
    seen: set[str] = set()
    place = 0
    expanded = [
        each for role, text in texts for each in (_voiced(text) if role == EARLIER else [(role, text)])
    ]
    for number, (role, text) in enumerate(expanded):
        voice = {"user": _USER, EARLIER: _EARLIER}.get(role, _ASSISTANT)
        if role in TOOL_ROLES or role in HEAD_ROLES:
            voice = _TOOL if role in TOOL_ROLES else _SYSTEM
        nearness = 0.1 * number / max(len(expanded) - 1, 1)
        plain = (" ".join(_MARKS.sub(" ", sentence).split()) for sentence in sentences_in(text))
        quotable = (each for each in plain if len(each) >= _SHORTEST or (voice == _USER and each))
        for at, sentence in enumerate(start_of(each, _LONGEST) for each in quotable):
            place += 1
            if sentence in seen:
                continue
            seen.add(sentence)
            # The weight of its content: users' rules, exact values, keywords.
            strength = strength_of(sentence) if voice in (_USER, _SYSTEM, _EARLIER) else 0
            facts = min(len(facts_in(sentence)), _FACTS)
            keyword = any(word in sentence.lower() for word in KEYWORDS)
            content = 0.2 * strength + 0.1 * facts + 0.15 * keyword
            first = 0.2 if at == 0 else 0.0
            yield place, f'{voices[voice]}: "{sentence}"', _WORTH[voice] + nearness + first + content
