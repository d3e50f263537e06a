"""Patterns for words with the same meaning and for values written as words, in six languages.

Most of what people specify about their work has one value at a time: a budget, a deadline, a time zone, who
is on call. Two sentences that name such an attribute in different words ("spending", "expenses") are about
the same thing, and the newer value counts.
"""

import re
from functools import cache

from proxy.core.lazy import cached_for_short_texts
from proxy.core.text.lexicon.patterns import any_of, beginnings_of, folded, folded_pattern
from proxy.core.text.lexicon.words import CURRENCIES, NUMERALS, UNSPACED

_ATTRIBUTES = {
    "money": (
        r"""budgets?|spend(?:ing)?|spent|costs?|expens\w+|expenditures?|outlays?|Kosten|Ausgaben|presupuestos?
        |gastos?|costes?|dépenses?|coûts?""",
        "予算|費用|経費|支出|预算|預算|费用|花费|花費|开支|開支",
    ),
    "deadline": (
        r"""deadlines?|due(?: date)?|(?:target )?dates?|timing|schedul\w+|cut-?off|Frist|Termin|Stichtag
        |Abgabe\w*|fecha(?: límite)?|plazo|entrega|échéance|date limite""",
        "締め?切り?|期限|納期|日程|日期|截止日?期?",
    ),
    "codename": (
        r"""code ?names?|names?|labels?|call(?:ed|ing)|named|designat\w+|dubbed|titles?|Namen?|heißt|genannt
        |Bezeichnung|nombres?|llama\w*|nom|s'appelle|appel\w+""",
        "名前|名称|コード名|呼[ぶびん]|代号|代號|名字|叫做?",
    ),
    "clock": (
        r"""time ?zones?|times?|timestamps?|clocks?|hours|Zeitzone|Uhrzeit(?:en)?|Zeitangaben|Zeitstempel
        |zona horaria|horas?|horarios?|fuseaux? horaires?|heures?|horodatages?""",
        "タイムゾーン|時刻|時間帯|时区|時區|时间戳?|時間戳?",
    ),
    "duty": (
        r"""on[- ]call(?: rotation)?|pagers?|standby|support (?:duty|rota|rotation|escalation)|duty|rota
        |Bereitschaft\w*|Rufbereitschaft|Notdienst|guardia|astreinte|permanence""",
        "当番|オンコール|待機|值班",
    ),
    "approval": (
        r"""approv\w+|sign(?:s|ed)?[- ]off|consent\w*|permission|authori[sz]\w+|go-ahead|Freigabe|Genehmigung
        |genehmig\w+|Zustimmung|aprobaci\w+|aprueb\w+|autoriza\w+|approbation|autoris\w+|accord""",
        "承認|許可|批准|同意|审批|審批",
    ),
    "secret": (
        r"""codes?|passwords?|passcodes?|passphrases?|pins?|secrets?|credentials?|Passwort|Kennwort
        |Zugangscode|contraseña|código|clave|mot de passe|code d'accès""",
        "暗証番号|パスワード|合言葉|コード|密码|密碼|口令|代码",
    ),
    "commit": (
        "commits?|revisions?|sha|hash",
        "コミット|提交",
    ),
    "branch": (
        r"branch(?:es|ed)?|rebas\w+|check(?:ed)? ?out|worktree|trunk|Zweig|ramas?|branches?",
        "ブランチ|分支",
    ),
    "style": (
        r"""answers?|repl(?:y|ies)|respon[sd]\w*|styles?|tone|wording|Antworten?|antworte|Stil|Ton(?:fall)?
        |respuestas?|responde|estilo|tono|réponses?|réponds|ton""",
        "回答|返事|返信|文体|口調|答复|答覆|回复|回覆|语气|語氣|风格|風格",
    ),
    "measure": (
        r"""measure(?:s|ments?)?|units?|distances?|lengths?|heights?|weights?|Maße|Maßeinheiten|Einheiten
        |medidas|unidades|mesures|unités""",
        "単位|单位|單位",
    ),
    "region": (
        r"regions?|data ?cent(?:er|re)s?|Regionen?|Rechenzentrum|regi[oó]n\w*|régions?",
        "リージョン|区域",
    ),
    "next": (
        r"""next(?: up| steps?| tasks?)?|nächste\w*(?: Schritt)?|siguiente(?: paso)?
        |(?:prochaine?|étape)(?: étape| suivante)?""",
        "次の手順|次は|下一步",
    ),
    "phase": (
        "phases?|stages?|milestones?|progress|Phase|Meilenstein|fase|hito|étape|jalon",
        "段階|阶段|階段|里程碑",
    ),
    "weekday": (
        "weekdays?|days?|Wochentag|día|jour",
        "曜日|星期几",
    ),
    "language": (
        "languages?|Sprache|idioma|lenguaje|langue|langage",
        "言語|语言|語言",
    ),
}
"""Attributes, which have one value at a time, each with its words in scripts with and without spaces."""

_SCOPES = {
    "release": (
        r"releas\w+|ship(?:s|ped|ping|ment)?|Veröffentlichung|publicación|publication",
        "リリース|发布|發布",
    ),
    "launch": (
        "launch(?:e[sd])?|go(?:es)?[- ]live|lanzamiento|lancement|Einführung",
        "公開|上线|上線",
    ),
    "freeze": (
        "freezes?|frozen",
        "凍結|冻结",
    ),
    "production": (
        "prod(?:uction)?|live (?:system|server|site)|Produktion|producción",
        "本番|生产|生產",
    ),
    "staging": (
        "staging|pre-?prod(?:uction)?|préproduction",
        "ステージング|预发",
    ),
    "testing": (
        "test(?:ing)? (?:system|server|database|environment)|Testsystem",
        "検証環境|测试环境",
    ),
    "primary": (
        r"primary|main|Haupt\w+|principal",
        "主[系要]",
    ),
    "backup": (
        "back-?ups?|secondary|fallback|respaldo|secours",
        "予備|备用|備用",
    ),
}
"""Words that distinguish two things of the same kind, such as the systems for production and testing."""

_LIMIT = (
    r"""caps?|capped|ceilings?|limit(?:s|ed)?|exceed\w*|pass|past|beyond|under|below|beneath|maximum
    |more than|at most|up to|max|höchstens|maximal
    |Obergrenze|Grenze|unter|mehr als|tope|límite|máximo|debajo|más de|plafond|limite|maximum|plus de
    |dépasse\w*|sous""",
    "上限|以内|以下|超え|不超过|不超過|超过|超過|最多",
)

_CARDINALS = "|".join(words.split()[0] for words in NUMERALS.values())

_VALUES = {
    "zone": (
        r"""(?-i:UTC|GMT)(?:[+-]\d{1,2})?|(?-i:[PMCE][SD]T|CES?T|BST|IST|JST|AEST|MESZ?)
        |(?:Africa|America|Asia|Atlantic|Australia|Europe|Indian|Pacific|Etc|Zone)/[\w+/-]+
        |(?:Pacific|Eastern|Mountain|Central(?: European)?|Atlantic|Greenwich|Tokyo|London|Paris|Berlin|local)
        (?: (?:Standard|Daylight|Mean))? time
        |mitteleuropäische\w* Zeit|hora (?:de|del|local)\b(?: \w+)?|heure de \w+""",
        "日本時間|協定世界時|北京时间|北京時間|世界时",
    ),
    "tone": (
        r"""terse|concise|brief|short|succinct|curt|laconic|verbose|detailed|thorough|long|formal|informal
        |casual|playful|warm|friendly|light|neutral|dry|humou?rous|funny|serious|professional|polite|blunt
        |direct|knappe?r?n?|kurze?n?|ausführliche?n?|förmliche?|locker\w*|freundliche?\w*|sachliche?\w*
        |breves?|concisas?|largas?|detalladas?|formales|amables?|cort[ao]s|brèves?|court(?:e?s?)
        |détaillée?s?|longues?|formelles?|amicales?|sobres?""",
        "簡潔|丁寧|詳し[くい]|くだけた|短く|简洁|簡潔|简短|簡短|详细|詳細|正式|随意|隨意|友好",
    ),
    "system": (
        r"""metric|imperial|(?-i:SI)|met(?:re|er)s?|feet|foot|inches|kilomet\w+|miles|celsius|fahrenheit
        |metrisch\w*|imperiale?\w*|métri(?:co|que)s?|imperial(?:es)?|impériale?s?|metros|pies|mètres|pieds""",
        "メートル法?|フィート|公制|英制|摄氏|华氏|攝氏|華氏",
    ),
    "tongue": (
        r"""English|German|French|Spanish|Japanese|Chinese|Italian|Portuguese|Englisch|Deutsch|Französisch
        |Spanisch|Japanisch|Chinesisch|inglés|alemán|francés|español|japonés|chino|anglais|allemand
        |français|espagnol|japonais|chinois
        |(?-i:Python|Rust|Golang|(?<=in )Go|TypeScript|JavaScript|Kotlin|Swift)
        |(?-i:Java|Ruby|PHP|Scala|Perl)""",
        "日本語|英語|中国語|中文|英文|日文|英语|英語|法语|德语",
    ),
    "day": (
        r"""(?:mon|tues|wednes|thurs|fri|satur|sun)days?|(?:Mon|Diens|Donners|Frei|Sams|Sonn)tags?|Mittwochs?
        |lunes|martes|miércoles|jueves|viernes|sábados?|domingos?|lundis?|mardis?|mercredis?|jeudis?
        |vendredis?|samedis?|dimanches?""",
        "[月火水木金土日]曜日?|(?:星期|周|週)[一二三四五六日天]",
    ),
    "quantity": (
        rf"(?:(?:{_CARDINALS}|a dozen)(?:[ -](?:and )?)?){{1,6}}(?:{CURRENCIES}|percent)?",
        "[一二三四五六七八九十百千万萬]{2,}",
    ),
}
"""Values that are written as words."""

_WORD = rf"[^\W\d_{UNSPACED}](?:[a-z\d_'\u2019]++|(?![{UNSPACED}])\w)*+|[$€£¥]?\d[\w.,/:-]*"


_WORDS = _VALUES | _SCOPES | _ATTRIBUTES | {"limit": _LIMIT}
_NAMED = "|".join(f"(?P<{name}>{any_of(words)})" for name, words in _WORDS.items())
_TOKEN = (
    rf"(?=[\w$€£¥])(?:(?={beginnings_of(*_WORDS.values())})(?:{_NAMED})"
    rf"|(?P<letter>[{UNSPACED}])|(?P<word>{_WORD}))"
)
"""A value, an attribute's name, a scope, a limit, a letter of a script without spaces, or another word.

The name of the group that matches says which. Most words begin as none of the others does.
"""
_IN_FOLDED = re.compile(folded_pattern(_TOKEN).replace("(?-i:", "(?:"))
_CASED = frozenset(name for name, (words, _) in _VALUES.items() if "(?-i:" in words)
"""Kinds of which some words are those in their own case alone, for which a text is read once more."""


@cache
def _in_case() -> re.Pattern[str]:
    return re.compile(_TOKEN, re.IGNORECASE)


def tokens_in(text: str) -> list[tuple[str, int, int]]:
    """Return the kind and the place of each token of a text: a value, an attribute, a word, and so on."""
    found = [(match.lastgroup or "word", *match.span()) for match in _IN_FOLDED.finditer(folded(text))]
    if not _CASED.isdisjoint([kind for kind, _, _ in found]):
        found = [(match.lastgroup or "word", *match.span()) for match in _in_case().finditer(text)]
    return found


@cached_for_short_texts(1 << 12)
def kind_of_token(text: str) -> str | None:
    """Return the kind of a text that is one token; None where it is none."""
    match = _IN_FOLDED.fullmatch(folded(text))
    if match and match.lastgroup in _CASED:
        match = _in_case().fullmatch(text)
    return match.lastgroup if match else None


VALUES = frozenset(_VALUES)
ATTRIBUTES = frozenset(_ATTRIBUTES)
SCOPES = frozenset(_SCOPES)
CONCEPTS = ATTRIBUTES | SCOPES | {"limit"}
FITTING = {
    "money": frozenset({"quantity"}),
    "deadline": frozenset({"date"}),
    "codename": frozenset({"code", "name", "symbol", "quoted"}),
    "clock": frozenset({"zone"}),
    "duty": frozenset({"name"}),
    "approval": frozenset({"name"}),
    "secret": frozenset({"code"}),
    "branch": frozenset({"path", "symbol"}),
    "commit": frozenset({"code"}),
    "style": frozenset({"tone", "name", "tongue"}),
    "measure": frozenset({"system"}),
    "region": frozenset({"code", "symbol"}),
    "weekday": frozenset({"day"}),
    "language": frozenset({"tongue"}),
}
"""The kinds of values that each attribute may have; an attribute whose values have no kind is left out."""
