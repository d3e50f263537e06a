"""The words by which people lay something down, in six languages, as patterns: data, not code.

Firm marks say outright what must or must not be. Plain ones limit, prefer or tie behaviour to an occasion.
Those of statements merely say how things now stand. English ``don't`` and ``never`` count where somebody is
told, not where somebody tells ("I never got it").
"""

import re

_FIRM = {
    "en": (
        r"\b(?:must(?:n['\u2019]t)?|shall not|under no circumstances|no(?:t)? (?:more|less) than|from now on",
        r"|going forward|for the rest of|forbidden|not allowed|prohibited|mandatory|off[- ]limits",
        r"|at all times|no exceptions?|non-negotiable|make sure|be sure to|no matter what",
        r"|important constraint",
        r"|(?:you|we) (?:should|may|can|are) not|is not to be)\b",
        r"|(?<!\bi )(?<!\bwe )(?<!ve )(?<!has )(?<!as )(?<!ad )\bnever\b",
        r"|(?:^|[,;:.\u2013-] ?|\b(?:please|and|but|so|also|then|just|or|you) )(?:do not|don['\u2019]t)\b",
        r"|(?:^|[,;:.\u2013-] ?|\b(?:please|you|and|but|should|must) )always\b",
        r"|\b(?:remember|keep in mind|bear in mind|note)(?:,| that\b|:| to\b)",
        r"|\bonly (?:\w+ )?(?:may|can|when|if|after|with|in|use|the)\b",
    ),
    "de": (
        r"\b(?:muss|müssen|musst|niemals|auf keinen Fall",
        r"|unter keinen Umständen|ab (?:jetzt|sofort)|von (?:nun|jetzt) an|künftig|höchstens|nicht mehr als",
        r"|verboten|ausschließlich|unbedingt|merk(?:e|en Sie)? dir|denk(?:e|en Sie)? daran|vergiss nicht",
        r"|bitte (?:immer|nie|nur|nicht|kein\w*)",
        r"|d(?:arf(?:st)?|ürfen)\b[^.!?]{0,60}\b(?:nicht|nur|kein\w*))\b",
    ),
    "es": (
        r"\b(?:debes?|deben|nunca|jamás|en ningún caso|bajo ningun\w+|a partir de ahora|de ahora en adelante",
        r"|como máximo|no más de|prohibid\w|obligatori\w|asegúrate|recuerda|no olvides|únicamente",
        r"|por favor,? no)\b",
    ),
    "fr": (
        r"\b(?:do(?:it|is|ivent)|devez|jamais|en aucun cas|sous aucun prétexte|désormais|dorénavant",
        r"|à partir de maintenant|au maximum|pas plus de|interdite?|obligatoire\w*|assure-toi|assurez-vous",
        r"|rappelle-toi|rappelez-vous|souviens-toi|n['\u2019]oublie\w*|uniquement)\b",
        r"|\bn(?:e |['\u2019])\w+(?: \w+)? pas\b",
    ),
    "ja": (
        r"必ず|絶対|決して|てはいけ|てはなら|てはだめ|ではいけ|ないでください|しないで|なければなら|禁止|今後",
        r"|これからは|以内に|を超えない|覚えておいて|忘れないで",
    ),
    "zh": (
        r"必须|必須|务必|務必|一定要|绝不|絕不|绝对不|絕對不|不要|不得|不许|不許|不可以|切勿|请勿|請勿|永远|永遠",
        r"|只能|从现在|從現在|今后|今後|以后都|以後都|不超过|不超過|不能超过|不能超過|最多|记住|記住|严禁|嚴禁",
    ),
}
_PLAIN = {
    "en": (
        r"\b(?:always|prefer\w*|avoid|instead of|rather than|without (?:asking|my|explicit|first)|unless",
        r"|until|at most|at least|limit(?:ed)? to|whenever|(?:every|each) time|before you|after you|when you",
        r"|as soon as you|(?:in (?:all|every|your|any)|every|any) (?:repl|answer|response|message)\w*",
        r"|every number|stick to|no longer|stop \w+ing|only|exactly",
        r"|i(?:['\u2019]d| would) (?:like you|rather|prefer)|i want (?:you|all|every|the)",
        r"|needs? (?:approval|to be)|requires?|required|allowed|cap(?:ped)?|ceiling|deadline|budget|maximum",
        r"|minimum|rule|constraint|ever|nobody else|confirm|approv\w+)\b",
    ),
    "de": (
        r"\b(?:immer|nie|stets|nur|bevorzug\w+|lieber|vermeide\w*|statt|ohne (?:Rückfrage|meine|zu)|bevor du",
        r"|wenn du|sobald du|jedes Mal|mindestens|maximal|soll(?:st|en)?)\b",
    ),
    "es": (
        r"\b(?:siempre|solo|sólo|solamente|prefiero|prefiere|evita\w*|en lugar de|sin (?:preguntar|mi)",
        r"|antes de|cuando|cada vez|al menos|no \w+(?:es|as|ís|éis))\b",
    ),
    "fr": (
        r"\b(?:toujours|seulement|préfère\w*|évite\w*|au lieu de|plutôt que|sans (?:demander|mon)|avant de",
        r"|quand tu|lorsque|chaque fois|au moins|au plus|il faut)\b",
    ),
    "ja": (r"常に|いつも|だけ|のみ|ようにして|避けて|てほしい|前に|ください|以下|以上|お願いします",),
    "zh": (
        r"始终|始終|总是|總是|只(?:用|要|在|需)|仅|僅|避免|优先|優先|更喜欢|更喜歡|每次|至少|之前",
        r"|[请請](?:用|把|在|先)|不能|别(?!的|人)",
    ),
}
_STATED = {
    "en": (
        r"\b(?:now|updated?|changed|moved|switched|renamed|replaced|rotated|actually|correction",
        r"|for (?:all|every|any|future)|when(?:ever)?|my \w+ (?:is|are)|call(?:ed)? me",
        r"|we (?:use|call|refer))\b",
        r"|^(?:use|keep|write|reply|answer|respond|format|include|exclude|send|report|put|end|start|begin|show",
        r"|give|ensure|limit|follow|treat|skip|wait|ask|save|cite|assume)\b",
    ),
    "de": (r"\b(?:jetzt|geändert|ab heute|mein\w* \w+ ist)\b",),
    "es": (r"\b(?:ahora|cambi\w+|mi \w+ es)\b",),
    "fr": (r"\b(?:maintenant|changé\w*|mon \w+ est|ma \w+ est)\b",),
    "ja": (r"変更|になりました|私の",),
    "zh": (r"现在|現在|改为|改為|我的",),
}


def _any_of(marks: dict[str, tuple[str, ...]]) -> re.Pattern[str]:
    return re.compile("|".join("".join(parts) for parts in marks.values()), re.IGNORECASE)


FIRM, PLAIN, STATED = _any_of(_FIRM), _any_of(_PLAIN), _any_of(_STATED)
