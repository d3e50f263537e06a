"""Which sentences bind later behaviour, in six languages: rules, limits, preferences, and what people lay down.

A sentence is taken word for word or not at all. Questions bind nobody, and code is no sentence. The marks are
words, not grammar: a sentence too many costs some tokens, a rule that is lost is broken.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

LONGEST = 320
"""Characters of a sentence."""
_SHORTEST = 4
MOST_SENTENCES = 60
"""Sentences of one message."""

_END = re.compile(
    r"(?<=[.!?…][\"”»)\]])\s+(?=[^\Wa-zß-ÿ])|(?<=[.!?…])\s+(?=[^\Wa-zß-ÿ]|[\"“«(¡¿])|(?<=[。!?])(?![」』”])"
)
_ABBREVIATED = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|cf|bzw|z\.B|d\.h|usw|Dr|Mr|Mrs|Ms|St|No|Nr|approx|p\.ej|Sr|Sra|M|Mme)|\b[A-Z])\.$"
)
_QUESTION = re.compile(r"[??][\"”»」』)\]]*$|か。?$|[吗呢嗎]。?$")
_FENCE = re.compile(r"^\s*(?:```|~~~)")
_PROGRAM = re.compile(
    r"^\s*(?://|/\*|\*/|>>>|\.\.\. |\$ |#!|@\w|def |class |import |from \w+ import|return\b|raise |assert |if .*:$"
    r"|for .*:$|else:|try:|except|\d+[:|]|[+-]{1,3} ?\w*\(|\w+\s*=[^=]|<\/?\w)|[{;\\]\s*$|^\s{8,}\S|\w\(\w*\)\s*[.:{]?$"
)
_SYMBOLS = re.compile(r"[{}()\[\];=<>|\\`_]")
_BULLET = re.compile(r"^\s*(?:[-*•·>+]|\(?\d{1,3}[.)]|[a-z]\)|#{1,6})\s+")

_FLAGS = re.IGNORECASE
_STRONG = re.compile(
    # English
    r"\b(?:must|mustn['’]t|shall not|under no circumstances|no more than|not more than|no less than|from now on|going forward"
    r"|for the rest of|forbidden|not allowed|prohibited|mandatory|off[- ]limits|at all times|no exceptions?|non-negotiable"
    r"|make sure|be sure to|no matter what|important constraint|(?:you|we) (?:should|may|can|are) not|is not to be)\b"
    r"|(?<!\bi )(?<!\bwe )(?<!ve )(?<!has )(?<!as )(?<!ad )\bnever\b"
    r"|(?:^|[,;:.–-] ?|\b(?:please|and|but|so|also|then|just|or|you) )(?:do not|don['’]t)\b"
    r"|(?:^|[,;:.–-] ?|\b(?:please|you|and|but|should|must) )always\b"
    r"|\b(?:remember|keep in mind|bear in mind|note)(?:,| that\b|:| to\b)|\bonly (?:\w+ )?(?:may|can|when|if|after|with|in|use|the)\b"
    # German
    r"|\b(?:muss|müssen|musst|niemals|darfst? (?:nicht|nur|kein\w*)|dürfen (?:nicht|nur|kein\w*)|auf keinen Fall|unter keinen Umständen"
    r"|ab (?:jetzt|sofort)|von (?:nun|jetzt) an|künftig|höchstens|nicht mehr als|verboten|ausschließlich|unbedingt|merk(?:e|en Sie)? dir"
    r"|denk(?:e|en Sie)? daran|vergiss nicht|bitte (?:immer|nie|nur|nicht|kein\w*))\b"
    # Spanish
    r"|\b(?:debes?|deben|nunca|jamás|en ningún caso|bajo ningun\w+|a partir de ahora|de ahora en adelante|como máximo|no más de"
    r"|prohibid\w|obligatori\w|asegúrate|recuerda|no olvides|únicamente|por favor,? no)\b"
    # French
    r"|\b(?:do(?:it|is|ivent)|devez|jamais|en aucun cas|sous aucun prétexte|désormais|dorénavant|à partir de maintenant|au maximum|pas plus de"
    r"|interdite?|obligatoire\w*|assure-toi|assurez-vous|rappelle-toi|rappelez-vous|souviens-toi|n['’]oublie\w*|uniquement)\b"
    r"|\bn(?:e |['’])\w+(?: \w+)? pas\b"
    # Japanese
    r"|必ず|絶対|決して|てはいけ|てはなら|てはだめ|ではいけ|ないでください|しないで|なければなら|禁止|今後|これからは|以内に|を超えない|覚えておいて|忘れないで"
    # Chinese
    r"|必须|必須|务必|務必|一定要|绝不|絕不|绝对不|絕對不|不要|不得|不许|不許|不可以|切勿|请勿|請勿|永远|永遠|只能|从现在|從現在|今后|今後|以后都|以後都"
    r"|不超过|不超過|不能超过|不能超過|最多|记住|記住|严禁|嚴禁",
    _FLAGS,
)
_MEDIUM = re.compile(
    r"\b(?:always|prefer\w*|avoid|instead of|rather than|without (?:asking|my|explicit|first)|unless|until|at most|at least|limit(?:ed)? to|whenever|every time"
    r"|each time|before you|after you|when you|as soon as you|in (?:all|every|your|any) (?:repl|answer|response|message)\w*|every (?:reply|answer|response|message|number|time)"
    r"|any (?:reply|answer|message)|stick to|no longer|stop \w+ing|only|exactly|i(?:['’]d| would) (?:like you|rather|prefer)|i want (?:you|all|every|the)"
    r"|needs? (?:approval|to be)|requires?|required|allowed|cap(?:ped)?|ceiling|deadline|budget|maximum|minimum|rule|constraint|ever|nobody else|confirm|approv\w+)\b"
    r"|\b(?:immer|nie|stets|nur|bevorzug\w+|lieber|vermeide\w*|statt|ohne (?:Rückfrage|meine|zu)|bevor du|wenn du|sobald du|jedes Mal|mindestens|maximal|soll(?:st|en)?)\b"
    r"|\b(?:siempre|solo|sólo|solamente|prefiero|prefiere|evita\w*|en lugar de|sin (?:preguntar|mi)|antes de|cuando|cada vez|al menos|no (?:uses|hagas|envíes|borres|toques|escribas|incluyas|\w+es|\w+as))\b"
    r"|\b(?:toujours|seulement|préfère\w*|évite\w*|au lieu de|plutôt que|sans (?:demander|mon)|avant de|quand tu|lorsque|chaque fois|au moins|au plus|il faut)\b"
    r"|常に|いつも|だけ|のみ|ようにして|避けて|てほしい|前に|ください|以下|以上|お願いします"
    r"|始终|始終|总是|總是|只(?:用|要|在|需)|仅|僅|避免|优先|優先|更喜欢|更喜歡|每次|至少|之前|请(?:用|把|在|先)|請(?:用|把|在|先)|不能|别(?!的|人)",
    _FLAGS,
)
_STATED = re.compile(
    r"\b(?:now|update[d]?|changed|moved|switched|renamed|replaced|rotated|actually|correction|for (?:all|every|any|future)|when(?:ever)?|my \w+ (?:is|are)|call(?:ed)? me|we (?:use|call|refer))\b"
    r"|\b(?:jetzt|geändert|ab heute|mein\w* \w+ ist)\b|\b(?:ahora|cambi\w+|mi \w+ es)\b|\b(?:maintenant|changé\w*|mon \w+ est|ma \w+ est)\b"
    r"|変更|になりました|私の|现在|現在|改为|改為|我的"
    r"|^(?:use|keep|write|reply|answer|respond|format|include|exclude|send|report|put|end|start|begin|show|give|ensure|limit|follow|treat|skip|wait|ask|save|cite|assume)\b",
    _FLAGS,
)
_LABEL = re.compile(
    r"^(?:[A-Z][A-Z _-]{2,30}|[A-Z]\w{2,15}(?: \d{1,3})?|[^\W\d_]{2,8}):\s?\S|^【[^】]{1,12}】"
)


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence that may bind."""

    text: str
    strength: int
    """3 for what says so outright, 2 for what limits or prefers, 1 for what is merely laid down."""


def binding(text: str) -> list[Sentence]:
    """The sentences of a text that bind, in order."""
    found = (Sentence(each, strength_of(each)) for each in sentences_of(text))
    return [each for each in found if each.strength][:MOST_SENTENCES]


def strength_of(sentence: str) -> int:
    """How firmly a sentence binds; 0 where it does not."""
    if _QUESTION.search(sentence):
        return 0
    if _STRONG.search(sentence):
        return 3
    if _MEDIUM.search(sentence) or _LABEL.match(sentence):
        return 2
    return 1 if _STATED.search(sentence) else 0


def sentences_of(text: str) -> Iterator[str]:
    """The sentences of a text that are prose and short enough to stand as they are."""
    in_fence = False
    for line in text.splitlines():
        if _FENCE.match(line):
            in_fence = not in_fence
        elif not in_fence and not _PROGRAM.search(line):
            yield from _sentences_of_line(_BULLET.sub("", line).strip())


def _sentences_of_line(line: str) -> Iterator[str]:
    held = ""
    start = 0
    for end in [*(match.span() for match in _END.finditer(line)), (len(line), len(line))]:
        held = line[start : end[0]]
        if _ABBREVIATED.search(held) and end[0] < len(line):
            continue
        start = end[1]
        sentence = held.strip()
        if _SHORTEST <= len(sentence) <= LONGEST and not _is_program(sentence):
            yield sentence


def _is_program(sentence: str) -> bool:
    return len(_SYMBOLS.findall(sentence)) * 10 > len(sentence)
