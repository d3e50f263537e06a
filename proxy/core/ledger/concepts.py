"""Words that speak of the same, and words that are values, in six languages, as patterns: data, not code.

Most of what people lay down about their work has one value at a time: a budget, a deadline, a time zone, who
is on call. Two sentences that name such an attribute in other words ("spending", "expenses") speak of the
same, and the newer value counts.
"""

import re

_ATTRIBUTES = {
    "money": (
        (
            r"budgets?|spend(?:ing)?|spent|costs?|expens\w+|expenditures?|outlays?|Kosten|Ausgaben|presupuestos?"
            r"|gastos?|costes?|dépenses?|coûts?"
        ),
        r"予算|費用|経費|支出|预算|預算|费用|花费|花費|开支|開支",
    ),
    "deadline": (
        (
            r"deadlines?|due(?: date)?|(?:target )?dates?|timing|schedul\w+|cut-?off|Frist|Termin"
            r"|Stichtag|Abgabe\w*"
            r"|fecha(?: límite)?|plazo|entrega|échéance|date limite"
        ),
        r"締め?切り?|期限|納期|日程|日期|截止日?期?",
    ),
    "codename": (
        (
            r"code ?names?|names?|labels?|call(?:ed|ing)|named|designat\w+|dubbed|titles?|Namen?"
            r"|heißt|genannt"
            r"|Bezeichnung|nombres?|llama\w*|nom|s'appelle|appel\w+"
        ),
        r"名前|名称|コード名|呼[ぶびん]|代号|代號|名字|叫做?",
    ),
    "clock": (
        (
            r"time ?zones?|times?|timestamps?|clocks?|hours|Zeitzone|Uhrzeit(?:en)?|Zeitangaben|Zeitstempel"
            r"|zona horaria|horas?|horarios?|fuseaux? horaires?|heures?|horodatages?"
        ),
        r"タイムゾーン|時刻|時間帯|时区|時區|时间戳?|時間戳?",
    ),
    "duty": (
        (
            r"on[- ]call(?: rotation)?|pagers?|standby|support (?:duty|rota|rotation|escalation)|duty|rota"
            r"|Bereitschaft\w*|Rufbereitschaft|Notdienst|guardia|astreinte|permanence"
        ),
        r"当番|オンコール|待機|值班",
    ),
    "approval": (
        (
            r"approv\w+|sign(?:s|ed)?[- ]off|consent\w*|permission|authori[sz]\w+|go-ahead|Freigabe"
            r"|Genehmigung"
            r"|genehmig\w+|Zustimmung|aprobaci\w+|aprueb\w+|autoriza\w+|approbation|autoris\w+|accord"
        ),
        r"承認|許可|批准|同意|审批|審批",
    ),
    "secret": (
        (
            r"codes?|passwords?|passcodes?|passphrases?|pins?|secrets?|credentials?|Passwort|Kennwort|Zugangscode"
            r"|contraseña|código|clave|mot de passe|code d'accès"
        ),
        r"暗証番号|パスワード|合言葉|コード|密码|密碼|口令|代码",
    ),
    "commit": (r"commits?|revisions?|sha|hash", r"コミット|提交"),
    "branch": (
        r"branch(?:es|ed)?|rebas\w+|check(?:ed)? ?out|worktree|trunk|Zweig|ramas?|branches?",
        r"ブランチ|分支",
    ),
    "style": (
        (
            r"answers?|repl(?:y|ies)|respon[sd]\w*|styles?|tone|wording|Antworten?|antworte|Stil|Ton(?:fall)?"
            r"|respuestas?|responde|estilo|tono|réponses?|réponds|ton"
        ),
        r"回答|返事|返信|文体|口調|答复|答覆|回复|回覆|语气|語氣|风格|風格",
    ),
    "measure": (
        (
            r"measure(?:s|ments?)?|units?|distances?|lengths?|heights?|weights?|Maße|Maßeinheiten|Einheiten|medidas"
            r"|unidades|mesures|unités"
        ),
        r"単位|单位|單位",
    ),
    "region": (
        r"regions?|data ?cent(?:er|re)s?|Regionen?|Rechenzentrum|regi[oó]n\w*|régions?",
        r"リージョン|区域",
    ),
    "next": (
        (
            r"next(?: up| steps?| tasks?)?|nächste\w*(?: Schritt)?|siguiente(?: paso)?|(?:prochaine?|étape)"
            r"(?: étape| suivante)?"
        ),
        r"次の手順|次は|下一步",
    ),
    "phase": (
        r"phases?|stages?|milestones?|progress|Phase|Meilenstein|fase|hito|étape|jalon",
        r"段階|阶段|階段|里程碑",
    ),
    "weekday": (r"weekdays?|days?|Wochentag|día|jour", r"曜日|星期几"),
    "language": (r"languages?|Sprache|idioma|lenguaje|langue|langage", r"言語|语言|語言"),
}
"""What has one value at a time, and the words that name it: with spaces between words, and without."""

_SCOPES = {
    "release": (
        r"releas\w+|ship(?:s|ped|ping|ment)?|Veröffentlichung|publicación|publication",
        r"リリース|发布|發布",
    ),
    "launch": (r"launch(?:e[sd])?|go(?:es)?[- ]live|lanzamiento|lancement|Einführung", r"公開|上线|上線"),
    "freeze": (r"freezes?|frozen", r"凍結|冻结"),
    "production": (r"prod(?:uction)?|live (?:system|server|site)|Produktion|producción", r"本番|生产|生產"),
    "staging": (r"staging|pre-?prod(?:uction)?|préproduction", r"ステージング|预发"),
    "testing": (r"test(?:ing)? (?:system|server|database|environment)|Testsystem", r"検証環境|测试环境"),
    "primary": (r"primary|main|Haupt\w+|principal", r"主[系要]"),
    "backup": (r"back-?ups?|secondary|fallback|respaldo|secours", r"予備|备用|備用"),
}
"""What tells two things of a kind apart."""

_LIMIT = (
    r"caps?|capped|ceilings?|limit(?:s|ed)?|exceed\w*|pass|under|below|beneath|maximum|max|höchstens|maximal"
    r"|Obergrenze|Grenze|unter|tope|límite|máximo|debajo|plafond|limite|maximum|dépasse\w*|sous"
)
_LIMIT_UNSPACED = r"上限|以内|以下|超え|不超过|不超過|最多"

_VALUES = {
    "zone": (
        (
            r"(?-i:UTC|GMT)(?:[+-]\d{1,2})?|(?-i:[PMCE][SD]T|CES?T|BST|IST|JST|AEST|MESZ?)"
            r"|(?:Africa|America|Asia|Atlantic|Australia|Europe|Indian|Pacific|Etc|Zone)/[\w+/-]+"
            r"|(?:Pacific|Eastern|Mountain|Central(?: European)?|Atlantic|Greenwich|Tokyo|London|Paris|Berlin"
            r"|local)"
            r"(?: (?:Standard|Daylight|Mean))? time|mitteleuropäische\w* Zeit|hora (?:de|del"
            r"|local)\b(?: \w+)?"
            r"|heure de \w+"
        ),
        r"日本時間|協定世界時|北京时间|北京時間|世界时",
    ),
    "tone": (
        (
            r"terse|concise|brief|short|succinct|curt|laconic|verbose|detailed|thorough|long|formal|informal|casual"
            r"|playful|warm|friendly|light|neutral|dry|humou?rous|funny|serious|professional|polite|blunt|direct"
            r"|knappe?r?n?|kurze?n?|ausführliche?n?|förmliche?|locker\w*|freundliche?\w*|sachliche?\w*|breves?"
            r"|concisas?|largas?|detalladas?|formales|amables?|cort[ao]s|brèves?|court(?:e?s?)|détaillée?s?"
            r"|longues?|formelles?|amicales?|sobres?"
        ),
        r"簡潔|丁寧|詳し[くい]|くだけた|短く|简洁|簡潔|简短|簡短|详细|詳細|正式|随意|隨意|友好",
    ),
    "system": (
        (
            r"metric|imperial|(?-i:SI)|met(?:re|er)s?|feet|foot|inches|kilomet\w+|miles|celsius|fahrenheit|metrisch\w*"
            r"|imperiale?\w*|métri(?:co|que)s?|imperial(?:es)?|impériale?s?|metros|pies|mètres|pieds"
        ),
        r"メートル法?|フィート|公制|英制|摄氏|华氏|攝氏|華氏",
    ),
    "tongue": (
        (
            r"English|German|French|Spanish|Japanese|Chinese|Italian|Portuguese|Englisch|Deutsch|Französisch|Spanisch"
            r"|Japanisch|Chinesisch|inglés|alemán|francés|español|japonés|chino|anglais|allemand|français|espagnol"
            r"|japonais|chinois|(?-i:Python|Rust|Golang|(?<=in )Go|TypeScript|JavaScript|Kotlin|Swift)"
            r"|(?-i:Java|Ruby|PHP|Scala|Perl)"
        ),
        r"日本語|英語|中国語|中文|英文|日文|英语|英語|法语|德语",
    ),
    "day": (
        (
            r"(?:mon|tues|wednes|thurs|fri|satur|sun)days?|(?:Mon|Diens|Donners|Frei|Sams|Sonn)tags?|Mittwochs?"
            r"|lunes|martes|miércoles|jueves|viernes|sábados?|domingos?|lundis?|mardis?|mercredis?|jeudis?|vendredis?"
            r"|samedis?|dimanches?"
        ),
        r"[月火水木金土日]曜日?|(?:星期|周|週)[一二三四五六日天]",
    ),
    "quantity": (
        (
            r"(?:(?:one|two|three|four|five|six|seven|eight|nine|ten|twelve|fifteen|twenty|thirty|forty|fifty|sixty"
            r"|seventy|eighty|ninety|hundred|thousand|million|a dozen)(?:[ -](?:and )?)?){1,6}"
            r"(?:dollars?|euros?|pounds?|yen|percent)?"
        ),
        r"[一二三四五六七八九十百千万萬]{2,}",
    ),
}
"""Values that are written as words."""

_UNSPACED = r"[\u3041-\u30ff\u3400-\u9fff]"
_WORD = (
    r"[^\W\d_\u3041-\u30ff\u3400-\u9fff](?:(?![\u3041-\u30ff\u3400-\u9fff])[\w'\u2019])*|[$€£¥]?\d[\w.,/:-]*"
)


def _group(name: str, spaced: str, unspaced: str) -> str:
    return rf"(?P<{name}>\b(?:{spaced})\b|{unspaced})"


TOKEN = re.compile(
    r"(?=[\w$€£¥])(?:"
    + "|".join(
        [
            *(_group(name, *words) for name, words in _VALUES.items()),
            *(_group(name, *words) for name, words in (_SCOPES | _ATTRIBUTES).items()),
            _group("limit", _LIMIT, _LIMIT_UNSPACED),
            rf"(?P<letter>{_UNSPACED})",
            rf"(?P<word>{_WORD})",
        ]
    )
    + ")",
    re.IGNORECASE,
)
"""A value, the name of an attribute, a letter of a script without spaces, or another word: the group says."""
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
"""The kinds of value that an attribute has, where it has a kind at all."""
