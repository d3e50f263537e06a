"""Words that decide what is remembered, for how long, and what must never be."""

import re

from proxy.core.text.lexicon.patterns import Wording, any_of
from proxy.core.text.lexicon.words import COUNTS, HAN_NUMERALS, MONTHS

# --- lasting facts: a person's identity, health and standing wishes ---

_IDENTITY = (
    r"""(?:is|are|am) (?:called|named|born|married|divorced|widowed|vegan|vegetarian|blind|deaf|left-handed)
    |name is|born (?:in|on)|birthdays?|pronouns?|native (?:speaker|language)|nationality|grew up
    |(?:lives?|living|resides?) (?:in|at)|works? (?:as|at|for)|profession|job title|religion
    |(?:wife|husband|spouse|partner|daughter|son|sister|brother|mother|father|child|children) (?:is|are)
    |heißt|geboren|Geburtstag|verheiratet|wohnt|lebt in|arbeitet (?:als|bei)|Beruf|Muttersprache
    |se llama|naci(?:ó|do|da)|cumpleaños|casad[oa]|vive en|trabaja (?:como|en|para)|profesión|lengua materna
    |s['\u2019]appelle|née?|anniversaire|mariée?|habite|travaille (?:comme|chez|pour)|métier
    |langue maternelle""",
    "という名前|名前は|生まれ|誕生日|結婚し|に住[んみ]|勤め|として働|出身|名叫|叫做|出生|生日|已婚|住在|工作于|职业|職業",
)
_HEALTH = (
    r"""allerg\w+|intoleran\w+|diabet\w+|asthma\w*|epilep\w+|celiac|coeliac|celiaqu\w+|zöliakie|anaphyla\w+
    |medications?|medicines?|prescri\w+|insulin\w*|pregnan\w+|blood (?:type|group|pressure)|disab(?:led|ility)
    |chronic|diagnos\w+|wheelchair|hypertension|vegan\w*|vegetarian\w*|vegetarisch|kosher|koscher|halal
    |Asthma|Medikament\w*|schwanger|Blutgruppe|Blutdruck|Behinderung|chronisch\w*
    |alérgic\w+|alergia\w*|asma|medicament\w+|medicación|embarazada|grupo sanguíneo|discapacidad|crónic\w+
    |asthme|médicaments?|enceinte|groupe sanguin|handicap\w*|chronique|végétari\w+|végétalien\w*|casher""",
    "アレルギー|糖尿病|喘息|薬を|妊娠|血液型|持病|障害者|菜食|过敏|過敏|糖尿病|哮喘|药物|藥物|怀孕|懷孕|血型|残疾|殘疾|素食",
)
_RULES = (
    r"""always|never|prefers?|preferred|preference|wants? (?:all|every)|insists?
    |immer|stets|nie|niemals|bevorzugt|lieber|siempre|nunca|jamás|prefiere|toujours|jamais|préfère""",
    "必ず|いつも|常に|決して|好む|方が好き|总是|總是|从不|從不|一律|偏好|更喜欢|更喜歡|永远|永遠",
)
STANDING = Wording(_IDENTITY, _HEALTH, _RULES)

# --- instructions to a model ---

_MODEL = (
    r"(?:the |an? |this |your )?(?:assistants?|agents?|models?|AI|chat ?bots?|bots?|LLMs?|Assistent\w*|KI"
    r"|Modell|asistentes?|modelo|IA|modèle)"
)
_MUST = (
    r"(?:must|should|shall|will|has to|have to|needs? to|is to|are to|can|may|always|never|muss|soll(?:te)?"
    r"|wird|darf|debe(?:rá|ría)?|tiene que|siempre|nunca|doit|devra(?:it)?|toujours|jamais)"
)
ORDERS = Wording(
    (
        rf"""(?:ignore|disregard|forget|override|bypass|skip)\b.{{0,40}}\b(?:instructions?|rules?|prompts?
        |messages?|guidelines?|policy|policies|above|previous|earlier|restrictions?|safety)
        |{_MODEL} {_MUST}|you (?:must|should|shall|have to|need to|are to|will now|are now)|from now on
        |system prompt|developer mode|jail ?break
        |ignorier\w*\b.{{0,40}}\b(?:Anweisung|Regel|Vorgabe|Nachricht)\w*|du (?:musst|sollst|bist jetzt)
        |(?:ab jetzt|von nun an)
        |ignor[ae]\w*\b.{{0,40}}\b(?:instrucci|regla|mensaje|norma)\w*|debes|a partir de ahora
        |ignore[rz]?\b.{{0,40}}\b(?:consigne|instruction|règle|message)s?|tu dois|vous devez
        |désormais|à partir de maintenant""",
        r"""指示を無視|命令を無視|以前の指示|アシスタントは.{0,20}(?:必ず|べき|なければ|こと)|今後は|これからは
        |忽略.{0,12}(?:指令|指示|规则|規則|说明|說明)|助手(?:必须|必須|应该|應該|要|应|應)|从现在起|從現在起
        |今后|今後""",
    )
)

# --- what is imagined, over or denied ---

_BEGINS = (
    r"(?:^|(?<=[.!?,;:] )|\b(?:and|but|so|even|now|please|let['\u2019]s|und|aber|bitte|y|pero|et|mais) )"
)
_IF = (
    r"(?:if (?:only )?(?:i|we) (?:ever |just )?(?:were|lived|had|worked|owned)"
    r"|si j(?:e |['\u2019])(?:\w{1,2}['\u2019 ]){0,2}(?!(?:[fsv]|conn|pl|par)ais\b)\w+ais"
    r"|si (?:yo |no |me )?(?:\w{3,}ara(?<!para)(?<!clara)|\w+(?<!qu)iera|fuera))\b"
)
IMAGINED = re.compile(
    rf"(?:(?:{_BEGINS}|(?P<real>(?:\bwould|['\u2019]d|\w(?:rais|ría))\b[^,;.!?]{{0,60}}? )){_IF}"
    rf"|{_BEGINS}(?:if i could\b|(?:imagine|pretend|suppose) (?:that )?(?:i|we)\b"
    r"|wenn ich [^,;.!?]{0,80}?\b(?:wäre|hätte|würde|könnte|lebte)\b"
    r"|(?:angenommen|stell dir vor|nehmen wir an),? |imagine que\b|imag[ií]nate|supongamos que\b)"
    r"|\b(?:i|we) wish (?:that )?(?:i|we)\b)"
    r"(?:(?! (?:but|aber|pero|mais)\b)(?:[^,;.!?]|\.(?=\w)))*",
    re.IGNORECASE,
)
"""What is certainly not so: a clause in which somebody imagines or wishes something of themselves.

It ends at the next comma. Of the group ``real`` that is not known: "I would cycle if I lived in Rome".
"""
IMAGINES = re.compile(
    r"\b(?:if|would|wish\w*|wants?|imagin\w+|pretend\w*|wenn|würde|möchte|wünsch\w*|si|quiere|\w{2,}ría"
    r"|voudrait|aimerait|veut)\b",
    re.IGNORECASE,
)
"""Words of a sentence that does not say more than that somebody imagines or wishes something."""
_HAS = "(?:hab(?:en?)?|hat(?:ten?)?|bin|ist|sind)"
_GONE = "(?:verlassen|verkauft|gekündigt|aufgehört|aufgegeben|ausgezogen|weggezogen|storniert)"
ENDED = re.compile(
    any_of(
        (
            rf"""quit(?:s|ting)?|left(?= (?:(?:my|the) (?:\w+ )?(?:job|company|team|firm)\b|(?-i:[A-ZÀ-Þ])))
        |g(?:ave|iv(?:es?|en|ing)) up|moved (?:away|out)|sold|cancell?ed|resigned
        |retired from|dropped out|got rid of|used to(?<!\bis used to)(?<!\bare used to)(?<!\bwas used to)
        (?<!\bwere used to)(?<!\bbe used to)(?! \w+ing\b)
        |{_HAS} [^,;:.!?]{{0,60}}\b{_GONE}|verließ|kündigte|verkaufte
        |dej[éó]|dejado|abandon(?:é|ó|ado)|renunci(?:é|ó|ado)|vend(?:í|ió|ido)|cancel(?:é|ó|ado)|solía[ns]?
        |quittée?|arrêtée?|abandonnée?|démissionné|vendue?|annulée?|résiliée?""",
            r"""やめ[たてま]|辞め|止め[たてま]|退職|引退|手放し|売却|売った|売りまし|解約|離れ[たま]
        |戒[掉烟菸酒]|辞职|辭職|离职|離職|离开|離開|搬离|搬離|搬走|卖掉|賣掉|卖了|賣了|退出|取消|放弃|放棄""",
        )
    ),
    re.IGNORECASE,
)
"""Wordings that say, without a negation, that something is no longer so. Adverbs of the past do not."""
WITH_NEGATION = Wording(
    (
        "do|does|any ?more|any(?: longer)?|longer|mehr|ya|ne|plus|noch",
        "もう|再|已经|已經|了",
    )
)
"""Words that come with a negation: "does not ... any more"."""
ARTICLES = frozenset("a an ein eine einen un una une des de du d la l".split())
"""Articles that a negation may take away: "ein Auto", "kein Auto"."""
PARTICLES = "にへをがとも"
"""Particles that tell Japanese sentences apart."""
NOT_DENIED = re.compile("なければ|なくて|なきゃ|たくな|(?<!た)しか(?![しも])|なかった")
"""Japanese forms of "not" that say what has to be, what is only so, what is not wanted, or what was not."""

# --- whom a sentence is about ---

ABOUT_USER = re.compile(
    r"^(?:(?:the |der |die |el |la |l['\u2019])?"
    r"(?:user|(?:be)?nutzer(?:in)?|anwender(?:in)?|usuari[oa]|utilisat(?:eur|rice))\b(?!['\u2019]s)"
    r"|(?:ユーザー?|用[户戶])(?!の|的))",
    re.IGNORECASE,
)
"""The beginning of an item that has the user as its subject."""
_OURS = "(?:my|our|meine?|unsere?|mis?|nuestr[oa]s?|mon|ma|mes|notre|nos)"
_NEAR = any_of(
    (
        r"""brother|sister|mother|father|mum|mom|dad|son|daughter|wife|husband|partner|boyfriend|girlfriend
        |uncle|aunt|cousin|nephew|niece|grand(?:mother|father|ma|pa|son|daughter)|parents|kids?|child(?:ren)?
        |boss|manager|colleague|co-?worker|friend|neighbou?r|roommate|flatmate|landlord
        |Bruder|Schwester|Mutter|Vater|Mama|Papa|Sohn|Tochter|Frau|Mann|Partnerin|Freund(?:in)?|Onkel|Tante
        |Neffe|Nichte|Opa|Oma|Eltern|Kind(?:er)?|Chef(?:in)?|Kolleg(?:e|in)|Nachbar(?:in)?|Mitbewohner(?:in)?
        |herman[oa]|madre|padre|mamá|papá|hij[oa]|espos[oa]|mujer|marido|pareja|novi[oa]|tí[oa]|prim[oa]
        |sobrin[oa]|abuel[oa]|jef[ea]|compañer[oa]|amig[oa]|vecin[oa]
        |frère|sœur|soeur|mère|père|maman|fils|fille|femme|mari|copine?|oncle|tante|neveu|nièce
        |grand-(?:mère|père)|patronne?|collègue|amie?|voisine?""",
        "",
    )
)
_NEAR_UNSPACED = (
    "哥哥|弟弟|姐姐|妹妹|爸爸|妈妈|媽媽|父亲|父親|母亲|母親|儿子|兒子|女儿|女兒|妻子|丈夫|老公|老婆|爷爷|奶奶"
    "|老板|上司|同事|朋友|邻居|兄|弟|姉|妹|父|母|息子|娘|妻|夫|祖父|祖母|友人|友達|同僚"
)
ABOUT_SOMEBODY_NEAR = re.compile(
    rf"^\W*(?:{_OURS} (?:\w+ ){{0,2}}?(?:{_NEAR})(?! (?:and|und|y|et) (?:i|ich|yo|moi)\b)"
    rf"|(?:我的?|私の|うちの|僕の)?(?:{_NEAR_UNSPACED})(?!と私|和我|的))",
    re.IGNORECASE,
)
"""The beginning of a sentence that has somebody near to its speaker as its subject."""
OF_ONESELF = re.compile(
    r"(?<!\w)(?:I|ich|yo|je|j['\u2019](?=\w)|we|wir|nosotros|nous)(?!\w)|(?<!^)(?:我(?!的)|私(?!の))",
    re.IGNORECASE,
)
"""The first person as another subject of the sentence: "My doctor says I am diabetic"."""

# --- facts with one value at a time: where somebody lives, how many of something they have ---

FIRST_PERSON = re.compile(
    r"(?:I(?:['\u2019](?:m|ve))?|ich|yo|je)(?=\s)|j['\u2019](?=\w)|私(?!たち)|僕(?!ら)|我(?![们們])",
    re.IGNORECASE,
)
"""The first person as the subject, at the beginning of a sentence."""
_NOW = r"(?: (?:now|currently|ahora|actualmente|maintenant|désormais))?"
_PLACE = r"[^\Wa-zß-ÿ_][^\W_]*(?:(?:, | |-)[^\Wa-zß-ÿ_][^\W_]*)*"
_SOMEBODY = (
    r"(?i:the |el |la |l['\u2019])?(?i:user|usuari[oa]|utilisat(?:eur|rice))"
    r"|[^\s,;:'\u2019]{1,80}(?: [^\Wa-zß-ÿ_]\w*)?"
)
LIVES = re.compile(
    rf"(?P<who>{_SOMEBODY})(?i:{_NOW} (?:(?:is |am )?living in|(?:lives?|resides?){_NOW} in"
    rf"|(?:viv|resid)[eo]{_NOW} en|(?:habite|vi[ts]|réside){_NOW} à)) (?P<where>{_PLACE})(?i:{_NOW})\W*"
)
"""Somebody lives in a place, and nothing else is said. A name tells that it is a place: "lives in fear".

There is no pattern for German, which capitalises all nouns, nor for Japanese and Chinese, which have no
capitals. Nor is there one for work (at a firm, for a person, in a town) and for moves ("moved to Postgres").
"""
_HAN_COUNTS = "".join(HAN_NUMERALS)
_MONTHS = "|".join(" ".join(MONTHS).lower().split())
COUNTED = (
    re.compile(
        r"(?P<who>.*?)\b(?:has|have|owns?|hat|haben?|besitz(?:t|en?)|tienen?|tengo|ont|possède) "
        rf"(?P<count>\d{{1,3}}|{COUNTS}) (?P<what>(?!(?:{_MONTHS}|uhr)\b)[^\W\d_]{{3}}.*)"
    ),
    re.compile(r"(?P<who>\w+) (?:is|am|ist|bin) (?P<count>\d{1,3}) (?P<what>(?:years old|jahre alt)\b.*)"),
    re.compile(rf"(?P<who>(?:l )?\w+) ai? (?P<count>\d{{1,3}}|{COUNTS}) (?P<what>[^\W\d_]{{3}}.*)"),
    re.compile(rf"(?P<who>.*?)有 (?P<count>\d{{1,3}}|[{_HAN_COUNTS}]) (?P<what>[^\W\d月日號号點点時时年].*)"),
)
"""How many of something somebody has, or how old somebody is: the number stands between a verb and its noun.

A number elsewhere may be a date, a time, or the name of one of several things, such as an order. The patterns
are for texts in lower case with a space after each word, and after each character of Chinese.
"""

# --- words for texts that somebody else has written ---

MATERIAL = any_of(
    (
        r"""articles?|(?:web ?)?pages?|web ?sites?|documents?|docs?|files?|e?-?mails?|letters?|posts?|tweets?
        |threads?|transcripts?|abstracts?|essays?|chapters?|excerpts?|passages?|paragraphs?|snippets?|papers?
        |results?|logs?|reports?|sources?|texts?|contents?|press release|README
        |Artikel|(?:Web)?seiten?|Dokumente?|Dateien?|Briefe?|Beitrag|Beiträge|Auszug|Abschnitt|Ergebnisse?|Bericht
        |Quellen?|Inhalt|artículos?|páginas?|documentos?|archivos?|correos?|cartas?|publicación|extracto|párrafo
        |resultados?|informe|fuentes?|textos?|contenido|pages?|fichiers?|courriels?|lettres?|publication|extrait
        |paragraphe|résultats?|rapport|sources?|textes?|contenu""",
        "記事|ページ|文書|書類|ファイル|メール|手紙|投稿|論文|本文|検索結果|資料|文章|网页|網頁|文档|文件|邮件|郵件|帖子|论文|論文|结果|結果|报告|報告",
    )
)

_BEFORE = (
    r"(?:(?:hi|hello|hey|thanks|ok|hallo|danke|hola|gracias|bonjour|salut|merci)(?: \w+)?|now|then|please"
    r"|(?:can|could|would) you|help me|jetzt|nun|(?:das )?bitte|(?:kannst|könntest) du(?: das)?|können sie"
    r"|ahora|por favor|puedes|podrías|maintenant|s['\u2019]il (?:te|vous) plaît|peux-tu|pouvez-vous)[,.!]?"
)
HANDS_OVER = (
    rf"(?:{_BEFORE} {{1,3}}){{0,4}}"
    r"(?:(?:translate|proof-?read|rewrite|rephrase|reword|paraphrase|correct (?:this|these|the|my)"
    r"|(?:übersetz|korrigier|überarbeit|formulier)e(?:n sie)?|tradu(?:ce|cir|zca|is|isez|ire)"
    r"|corr[ei]g(?:e[zr]?|ir)|reescrib(?:e|a|ir)|réécri(?:s|vez|re)|reformul(?:a|e[zr]?))\b"
    r"(?![ -](?:me|mich|dich|moi|yourself)\b)"
    r"|(?:(?:die|den|diesen?|folgende[ns]?|ins|auf)\b[^\n:.!?]{0,60} )?(?:übersetzen|korrigieren)(?= ?:)"
    r"|[^\n:.!?\uff1a。]{0,40}?(?:(?:翻訳|校正|添削)し|訳し|書き直し)て(?![いるま])"
    r"|(?:请|請|帮我|幫我|麻烦|麻煩|把)[^\n:.!?\uff1a。]{0,30}?(?:翻译|翻譯|校对|校對|润色|潤色|改写|改寫)"
    r"|(?:翻译|翻譯)[成为為])"
    r"(?![^\n:\uff1a]*\b(?:always|from now on|immer|ab jetzt|siempre|toujours|désormais)\b)"
)
"""The beginning of a line that asks for work on a text, as in "Translate to French: ..."."""

# --- words for secrets ---

SECRETS = any_of(
    (
        r"""(?:(?:api|access|private|secret|auth|refresh|bearer|client|service|encryption|signing)[ _-]?){1,4}
        (?:keys?|tokens?|secrets?)|tokens?|pass(?:word|wd|phrase|code)s?|pwd|credentials?|pins?
        |pin[ -]?(?:codes?|numbers?|Nummern?)
        |\w{1,40}_(?:password|passwd|pass|pwd|secret|token|(?:api|access|private|secret)_?key)
        |(?:access|door|entry|security|unlock|recovery|backup|alarm|cv)[ _-]?codes?|cvv2?|cvc
        |(?:Zugangs|Tür|Sicherheits)code|(?:Pass|Kenn)w(?:ort|örter)|Schlüsselwort|PIN
        |contraseñas?|clave(?: de acceso| secreta)?|código de (?:acceso|seguridad)
        |mots? de passe|code (?:d['\u2019]accès|secret|de sécurité)|clé (?:api|secrète|privée)""",
        "パスワード|暗証番号|合言葉|秘密鍵|密码|密碼|口令|密钥|密鑰|令牌|验证码|驗證碼",
    )
)
SECRETS_PERHAPS = any_of(("secrets?|Geheimnis|secreto", "秘密"))
"""Words that name secrets among other things."""
BELONGS_TO = (
    r"for|of|to|at|on|in|from|with|I|we|you|that|which"
    r"|für|von|vom|zu[mr]?|beim?|a[mn]|im|de[rs]|meine[rs]|unsere[rs]|(?:das|die) (?:ich|wir)|ich|wir"
    r"|del?|para|en|al?|que|du|des|pour|à|aux?|sur|(?:d|qu)['\u2019]\w{1,20}"
)
"""Beginnings of what is said between a secret's name and the word that gives it: "for my card"."""
IS_NOW = r"\s+(?:is|was|ist|lautet|war|es|era|est|était)(?:\s+(?:now|jetzt|nun|ahora|maintenant|désormais))?"
IS_SET_TO = r"\s+(?:to|auf|a|en|à)"
"""As in "I set the PIN to 4711"."""
IS_UNSPACED = r"\s*(?:は|是|为|為)"
