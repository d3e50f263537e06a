"""Whether users said what a summary says they said.

Words of a tool can be told as a user's order; carried on in a note they would be obeyed. So a claim that the
user asked, approved or confirmed something needs the user's words: those in quotation marks word for word, of
others enough. A bare assent ("yes, do it") covers what the source speaks of.
"""

import re

from proxy.core.wording import sentences_in, share, words_of

_ASKED = (
    r"(?:said|says|state[ds]|mention|ask|request|want|need|tell|told|instruct|order|demand|requir"
    r"|command|direct|insist|prefer|wish)\w*"
    r"|(?:bat|gebeten|bittet|fordert\w*|verlangt\w*|wollte|will|wünscht\w*|beauftragt\w*|angewiesen"
    r"|fragt\w*|gefragt)"
    r"|(?:pid\w+|solicit\w+|orden\w+|quier\w+|quiso|exig\w+|pregunt\w+|indic\w+|instruy\w+)"
    r"|(?:a )?(?:demand\w+|ordonn\w+|veut|voulai\w+|souhait\w+|exig\w+|réclam\w+)"
)
_AGREED = (
    r"(?:approv|confirm|authori[sz]|agre|allow|permit|accept|consent|grant|sign)\w*"
    r"|(?:genehmigt\w*|bestätigt\w*|erlaubt\w*|zugestimmt|stimmte|autorisiert\w*|gestattet\w*)"
    r"|(?:aprob\w+|confirm\w+|autoriz\w+|acept\w+|permit\w+)"
    r"|(?:a )?(?:approuv\w+|confirm\w+|autoris\w+|accept\w+|permis)"
)
_USER = (
    r"\b(?:user|client|customer|human|benutzer(?:in)?|nutzer(?:in)?|anwender(?:in)?|usuari[oa]|cliente"
    r"|utilisat(?:eur|rice))s?\b(?! (?:constraints?|requirements?)\b)"
)
_BETWEEN = (
    r"(?: (?:is|was|has|had|have|been|also|then|explicitly|clearly|later|already"
    r"|hat|hatte|ha|había|se|le|lui|avait)){0,3} "
)
_CJK_USER = r"(?:ユーザー?|用户|用戶|客户|客戶)"
_CLAIM = re.compile(
    rf"{_USER}{_BETWEEN}(?:{_ASKED})(?P<asked>)(?P<after>[^\n]*)"
    rf"|{_USER}{_BETWEEN}(?:{_AGREED})(?P<agreed>)(?P<then>[^\n]*)"
    rf"|{_USER} (?:hat|hatte) (?P<german>[^\n.;]*) (?:gebeten|verlangt|gefordert|beauftragt|angewiesen"
    r"|genehmigt|bestätigt|erlaubt|zugestimmt)\b"
    rf"|{_CJK_USER}(?P<cjk>[^\n。]*(?:依頼|要求|指示|求め|頼|请求|請求|命令|希望|让|讓|请|請))(?P<behind>[^\n。]*)"
    rf"|{_CJK_USER}(?P<assent>[^\n。]*(?:承認|許可|同意|確認|批准|确认|允许|允許|授权|授權))(?P<rest>[^\n。]*)",
    re.IGNORECASE,
)
_NEXT_CLAUSE = re.compile(
    r"[;.!?。](?:\s|$)|,? (?:and|but|so|while|which|und|aber|y|pero|et|mais) (?:then )?(?:the )?"
    r"(?:assistant|agent|it|model|tool|der|die|das|el|la|le|l['\u2019])\b|\bassistant\b",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"[\"“«「『]([^\"“”«»「」『』\n]{3,200})[\"”»」』]")
_ASSENT = re.compile(
    r"\b(?:yes|yep|yeah|ok(?:ay)?|sure|approved?|confirm(?:ed)?|agreed?|go ahead|do it|please do|fine"
    r"|sounds good"
    r"|perfect|correct|exactly|great|ja|gerne|einverstanden|genehmigt|mach das|genau|sí|si|vale"
    r"|de acuerdo|adelante"
    r"|claro|oui|d['\u2019]accord|vas-y|allez-y|parfait|bien sûr)\b"
    r"|はい|お願い|了解|承認|いいです|大丈夫|好的?|可以|同意|批准|是的|没问题|沒問題|行",
    re.IGNORECASE,
)
_HEADING = re.compile(
    r"^\W*user(?:'s)? (?:constraints?|requirements?)\W*(?::\W*(?P<rest>.*))?$", re.IGNORECASE
)
_NONE = re.compile(
    r"^\W*(?:none|n/?a|not specified|no(?:ne)? (?:specific|given|stated).*)\W*$", re.IGNORECASE
)
_AGREED_SHARE, _ASKED_SHARE = 0.5, 0.34
"""Of a claim's words: how many must be the user's."""


def ascribed(summary: str, said: str, told: str) -> str | None:
    """What ``summary`` says of the user without the user's words, if anything.

    ``said`` is what users said, ``told`` the whole source.
    """
    users = words_of(said)
    for claim, is_assent in _claims(summary):
        words = words_of(_QUOTED.sub(" ", claim))
        if not all(_squeezed(quote) in _squeezed(said) for quote in _QUOTED.findall(claim)):
            return claim
        if _QUOTED.search(claim) or (not words and said.strip()):
            continue
        if is_assent and _ASSENT.search(said) and share(words, words_of(told)) >= _AGREED_SHARE:
            continue
        if share(words, users) < (_AGREED_SHARE if is_assent else _ASKED_SHARE):
            return claim
    return None


def _claims(summary: str) -> list[tuple[str, bool]]:
    """What a summary says of the user, each with whether it tells of an assent."""
    found: list[tuple[str, bool]] = []
    for match in _CLAIM.finditer(summary):
        parts = match.groupdict()
        is_assent = any(parts[key] is not None for key in ("agreed", "german", "assent"))
        keys = ("after", "then", "german", "cjk", "behind", "assent", "rest")
        told = " ".join(parts[key] for key in keys if parts[key])
        found.append((_NEXT_CLAUSE.split(told, maxsplit=1)[0], is_assent))
    return [*found, *((item, False) for item in _listed_constraints(summary))]


def _listed_constraints(summary: str) -> list[str]:
    """What stands under the heading of the user's constraints."""
    items: list[str] = []
    is_within = False
    for line in summary.splitlines():
        heading = _HEADING.match(line)
        if heading:
            is_within = not heading["rest"]
            items += sentences_in(heading["rest"] or "")
        elif is_within and (not line.strip() or line.strip().strip("*#_ ").endswith(":")):
            is_within = not line.strip() and not items
        elif is_within:
            items += sentences_in(line)
    return [item for item in items if not _NONE.match(item)]


def _squeezed(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).casefold()
