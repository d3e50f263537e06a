"""Whether a summary turns around what a user laid down: "do not deploy" must not become "may deploy".

What code can say soundly: a binding sentence of a user is negated, and a sentence of the summary has its
words and no negation of any kind; or the other way round. Where the source itself says both, the summary may.
"""

import re
from collections.abc import Iterable

from proxy.core.ledger.sentences import strength_of
from proxy.core.wording import sentences_in, share, words_of

_NEGATION = re.compile(
    r"\b(?:not?|never|none|nothing|nobody|neither|nor|cannot|without|avoid(?:s|ed|ing)?|forb[aio]d\w*"
    r"|prohibit(?:s|ed)?|disallow(?:s|ed)?|refrain(?:s|ed)?|ban(?:s|ned)?|off[- ]limits|stop(?:s|ped)?"
    r"|nicht|nichts|nie|niemals|kein(?:e[nmrs]?)?|niemand|ohne|vermeide[nt]?|verb(?:iete[nt]?|oten)"
    r"|untersag\w+"
    r"|nunca|jamás|ningun[oa]?|ningún|nada|nadie|ni|sin|evit\w+|prohib\w+"
    r"|pas|jamais|aucune?|rien|personne|sans|évite[rzs]?|interdi\w+)\b|n['\u2019]t\b"
    r"|\bn['\u2019](?=[aeéiouh])"
    r"|ない|なかった|せず|ません|禁止|ダメ|だめ|不|没|沒|别(?!的|人)|別(?!的|人)|勿|莫|无|無|禁|避免|避け",
    re.IGNORECASE,
)
_RELIEF = re.compile(
    r"\b(?:only|unless|until|except|exclude[sd]?|instead|rather than|refuse[sd]?|reject(?:s|ed)?|deny"
    r"|denie[sd]"
    r"|block(?:s|ed)?|prevent(?:s|ed)?|remove[sd]?|free of|at most|limit(?:s|ed)?|other than"
    r"|nur|außer|statt|lehnt\w*|abgelehnt|höchstens|solo|sólo|salvo|excepto|en lugar|rechaz\w+"
    r"|seulement|sauf|uniquement|au lieu|refus\w+|rejet\w+)\b|のみ|だけ|以外|拒|只|仅|僅|除",
    re.IGNORECASE,
)
_IDIOM = re.compile(
    r"\b(?:(?:do not|don['\u2019]t|never) (?:forget|hesitate|worry|mind)|no (?:later|more|less|fewer"
    r"|longer) than"
    r"|not (?:more|less|only|just)|no problem|vergiss nicht|nicht (?:mehr als|nur)|no (?:olvides?"
    r"|más de|solo)"
    r"|n['\u2019]oublie[zs]? pas|pas plus de|ne\b.{1,20}\bque)\b"
    r"|忘れないで|(?:を|は)超え(?:ない|ません)|不要忘|别忘|別忘|不(?:超过|超過|仅|僅|但)|不能超[过過]",
    re.IGNORECASE,
)
_TAKEN_BACK = re.compile(
    r"\b(?:(?:must|shall|should|may|need|do|does|did) ?(?:not|n['\u2019]t)|never|not (?:allowed"
    r"|required|necessary"
    r"|needed|to)|no need|optional|forb[ai]d\w*|prohibit\w*|nicht (?:nötig|erforderlich|dürfen?"
    r"|erlaubt)|verboten"
    r"|braucht? (?:nicht|kein)|darf nicht|no (?:debe|hace falta|es necesario|necesita)\w*|prohib\w+"
    r"|ne (?:doit|faut|pas)|pas (?:besoin|nécessaire|obligatoire)|interdi\w+)\b"
    r"|必要(?:は|が)?(?:ない|ありません)|禁止|しないで|不(?:必|需要|要|用|得|应|應|准|能)|无需|無需",
    re.IGNORECASE,
)
_CLAUSE = re.compile(r"[,;:\uff0c\uff1b、。]|\b(?:and|but|while|und|aber|y|pero|et|mais)\b|[\u2013\u2014]")
_ALIKE = 0.8
"""Of a rule's words, how many a sentence has that speaks of the same."""
_LEAST_WORDS = 2
_BINDING, _FIRM = 2, 3


def turned_around(summary: str, said: str, told: str) -> str | None:
    """The sentence of a user that ``summary`` turns around, if any.

    ``said`` is what users said, ``told`` the whole source.
    """
    claims = list(_with_headings(summary))
    clauses = [clause for claim in claims for clause in _CLAUSE.split(claim)]
    for rule in sentences_in(said):
        strength = strength_of(rule)
        bare = _IDIOM.sub(" ", rule)
        is_negated = bool(_NEGATION.search(bare))
        words = words_of(_NEGATION.sub(" ", bare))
        if strength < (_BINDING if is_negated else _FIRM) or len(words) < _LEAST_WORDS:
            continue
        told_again = (each for each in (claims if is_negated else clauses) if _is_about(words, each))
        is_turned = any(map(_says_yes if is_negated else _TAKEN_BACK.search, told_again))
        if is_turned and not _says_both(words, told, is_negated=is_negated):
            return rule
    return None


def _is_about(words: frozenset[str], sentence: str) -> bool:
    return share(words, words_of(sentence)) >= _ALIKE


def _says_yes(claim: str) -> bool:
    return not (_NEGATION.search(claim) or _RELIEF.search(claim))


def _says_both(words: frozenset[str], told: str, *, is_negated: bool) -> bool:
    """Whether the source has the opposite too: the newer may have taken the place of the older."""
    alike = (each for each in sentences_in(told) if _is_about(words, each))
    return any(bool(_NEGATION.search(_IDIOM.sub(" ", each))) != is_negated for each in alike)


def _with_headings(summary: str) -> Iterable[str]:
    """The sentences of a summary, those under a heading with it: `Never: deploy on Fridays`."""
    heading = ""
    for line in summary.splitlines():
        plain = line.strip().strip("*#_ ")
        if plain.endswith((":", "\uff1a")):
            heading = plain
        elif not plain:
            heading = ""
        else:
            yield from (f"{heading} {each}".strip() for each in sentences_in(plain))
