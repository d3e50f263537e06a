"""Sentences, and the words in them that carry content: enough to see whether two tell of the same.

Not grammar: words are cut to what their forms share, and of Japanese and Chinese pairs of characters count,
those of kanji, hanzi and katakana.
"""

import re
import unicodedata
from functools import lru_cache

_REMEMBERED = 4_096
_STEM = 5
"""Characters of a word that count: `deploy`, `deploying` and `deployment` are one."""
_END = re.compile(r"(?<=[.!?;…])[\"”»)\]]*\s+|(?<=[。\uff01\uff1f\uff1b])|\n+")
_WORD = re.compile(r"[0-9]+|[^\W\d_\u2e80-\u9fff\uac00-\ud7af]+|[\u30a0-\u30ff\u3400-\u9fff]{2,}")
_CJK = re.compile(r"[\u30a0-\u30ff\u3400-\u9fff]")
_SUFFIX = re.compile(r"(?:ions?|ings?|ments?|ies|ied|ed|es|s|en|er|ez|ir|ar|y|e)$")
_DOUBLED = re.compile(r"([^\d])\1$")
"""As in `shipped`, without its ending."""
_STOP = frozenset(
    "a an the and or but of to in on at by for with from into as is are was were be been being am it "
    "its this "
    "that these those there here he she they them their his her we us our you your me my i do does did done "
    "doing have has had having will would can could should shall may might must so then than if when while "
    "which who whom whose what where how also just about all any each every some such own same too very over "
    "under again once more most other up out off user users assistant client customer please want wants "
    "wanted need needs needed like ever allow allowed allows permit permitted require required requires "
    "constraint constraints asked said told "
    "der die das den dem des ein eine einen einem einer und oder aber zu zum zur im am auf für mit "
    "von vom bei "
    "aus nach über unter ist sind war waren sein wird werden wurde wurden hat haben hatte es er sie wir ihr "
    "du ich mich mir dich dir sich man als wie so dann wenn dass auch nur noch schon bitte soll sollte muss "
    "darf darfst dürfen müssen musst sollst sollen kann können nutzer benutzer anwender erlaubt "
    "el la los las un una unos unas y o u pero de del al a en con por para es son era eran ser fue fueron ha "
    "han había que se su sus lo le les me te nos mi tu si como más ya también muy este esta esto estos debe "
    "deben debes puede pueden usuario usuaria cliente asistente favor permitido "
    "le les du des au aux ne et ou mais dans sur sous avec pour par est sont était étaient être fut "
    "a ont avait "
    "il elle on nous vous ils elles je tu me te se ce cet cette ces son sa ses leur leurs mon ma mes ton ta "
    "tes qui que quoi dont où comme aussi très plus doit doivent dois faut peut peuvent utilisateur "
    "utilisatrice "
    "plaît autorisé".split()
)
_STOP_PAIRS = frozenset("ユー ーザ ザー 用户 用戶 使用 必ず 必须 必須 可以 允许 允許 許可 要求".split())


@lru_cache(_REMEMBERED)
def words_of(sentence: str) -> frozenset[str]:
    """The words that carry content, cut to their stems."""
    found: set[str] = set()
    for word in _WORD.findall(unicodedata.normalize("NFKC", sentence).lower()):
        if _CJK.match(word):
            found.update(word[at : at + 2] for at in range(len(word) - 1))
        elif word not in _STOP and (len(word) > 1 or word.isdigit()):
            found.add(_stem(word))
    return frozenset(found - _STOP_PAIRS)


def _stem(word: str) -> str:
    stem = _SUFFIX.sub("", word) if len(word) > 4 else word.rstrip("sd") or word
    return _DOUBLED.sub(r"\1", stem)[:_STEM]


def sentences_in(text: str) -> list[str]:
    """The sentences of a text, each line at least one."""
    return [each.strip() for each in _END.split(text) if each.strip()]


def share(wanted: frozenset[str], found: frozenset[str]) -> float:
    """How many of the ``wanted`` words are there: 0 to 1."""
    return len(wanted & found) / len(wanted) if wanted else 0.0
