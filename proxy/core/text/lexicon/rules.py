"""Words with which people demand, forbid, allow, withdraw, change and claim something.

Each list has first the wordings of languages with spaces between words, then those of languages without.
"""

import re

from proxy.core.text.lexicon.patterns import Wording, any_of
from proxy.core.text.lexicon.words import COUNTS

# --- negations, and wordings that only look like one ---

PROHIBITION = (
    r"""forb[aio]d\w*|prohibit(?:s|ed)?|disallow(?:s|ed)?|ban(?:s|ned)?|not allowed|off[- ]limits|taboo|tabu
    |verb(?:iete[nt]?|oten)|untersag\w+|prohib\w+|interdi\w+""",
    "禁止|严禁|嚴禁",
)
_NO_LIMIT = rf"(?! (?:qu[e'\u2019]|d(?:e |['\u2019])(?:\d|(?:{COUNTS})\b)))"
"""Not "plus de 3" nor "plus que", which say how much."""
_NEGATION = (
    rf"""not?|never|none|nothing|nobody|neither|nor|cannot|dont|cant|wont|without|avoid(?:s|ed|ing)?|refrain(?:s|ed)?
    |stop(?:s|ped)?|stay (?:away|out|off|clear)|steer clear|keep (?:away|out|off|clear)|hands off
    |nicht|nichts|nie|niemals|kein(?:e[nmrs]?)?|niemand|ohne|vermeide[nt]?|nunca|jamás
    |ningun[oa]?|ningún|nada|nadie|ni|sin|evit\w+
    |ne(?= (?:(?!qu[e'\u2019])[^,.;:!?]){{1,40}}(?<!\b(?:au|de|en)) plus\b{_NO_LIMIT})
    |pas|jamais|aucune?|rien|personne|sans|évite[rzs]?""",
    r"""n['\u2019]t\b|\bn['\u2019](?=[aeéiouh])|ない|なかった|せず|ません|ダメ|だめ|不|没|沒|未(?!来|來|必|知|婚|満|满)|别(?!的|人)
    |別(?!的|人)|勿|莫|无|無|禁|避免|避け""",
)
NEGATION = Wording(PROHIBITION, _NEGATION)
RELIEF = Wording(
    (
        r"""only|unless|until|except|exclude[sd]?|instead|rather than|refuse[sd]?|reject(?:s|ed)?|deny
        |denie[sd]|block(?:s|ed)?|prevent(?:s|ed)?|remove[sd]?|free of|at most|limit(?:s|ed)?|other than
        |nur|außer|statt|lehnt\w*|abgelehnt|höchstens|solo|sólo|salvo|excepto|en lugar|rechaz\w+|seulement
        |sauf|uniquement|au lieu|refus\w+|rejet\w+""",
        "のみ|だけ|以外|拒|只|仅|僅|(?<![削删刪清移解拆扫掃])除",
    )
)
"""A sentence with one of these may mean the same as one with a negation."""
NEGATED_DEMAND = Wording(
    (
        r"""(?:do not|don['\u2019]?t|never) (?:forget|hesitate|worry|mind)
        |no (?:later|more|less|fewer|longer) than|not (?:more|less|only|just)|no problem|vergiss nicht
        |nicht (?:mehr als|nur)|no (?:olvides?|más de|solo)|n['\u2019]oublie[zs]? pas|pas plus de
        |ne\b.{1,20}\bque|not? (?:\w+ )?other|no(?:body| one) else|keine? andere[nr]?
        |niemand (?:sonst|anders)|ningún otro|nadie más|aucune? autre|personne d['\u2019]autre""",
        "忘れないで|(?:を|は)超え(?:ない|ません)|不要忘|别忘|別忘|不(?:超过|超過|仅|僅|但)|不能超[过過]",
    )
)
"""Idioms that contain a negation but forbid nothing."""
DOUBLE_NEGATION = re.compile(
    r"\b(?:not?|never|nobody|n['\u2019]t|kein\w*|nie|niemals|nunca|nadie|jamais|ne)\b(?:[^.!?]|\.(?=\w)){0,80}"
    r"\b(?:without|ohne|sin|sans)\b",
    re.IGNORECASE,
)
"""A double negation is a demand: "never deploy without tests" demands tests."""
TAKEN_BACK = Wording(
    PROHIBITION,
    (
        r"""(?:must|shall|should|may|need|do|does|did) ?(?:not|n['\u2019]?t)|never
        |not (?:required|necessary|needed|to)|no need|optional
        |nicht (?:nötig|erforderlich|dürfen?|erlaubt)|braucht? (?:nicht|kein)|darf nicht
        |no (?:debe|hace falta|es necesario|necesita)\w*|ne (?:doit|faut|pas)
        |pas (?:besoin|nécessaire|obligatoire)""",
        "必要(?:は|が)?(?:ない|ありません)|しないで|不(?:必|需要|要|用|得|应|應|准|能)|无需|無需",
    ),
)
"""Wordings that reverse a demand: what it demands is forbidden, or not necessary."""

# --- withdrawals, permissions and demands ---
# A withdrawal says explicitly that a rule no longer holds; a permission allows what another sentence may
# forbid.

WITHDRAWS = Wording(
    (
        r"""no longer (?:forbidden|prohibited|banned|disallowed|off[- ]limits|taboo|appl(?:y|ies)|holds?|valid
        |in force
        |required|needed|necessary|mandatory|binding)|not (?:forbidden|prohibited|banned) any ?(?:more|longer)
        |(?:is|are|was|were|been|be|being) (?:hereby )?(?:lifted|withdrawn|revoked|cancell?ed|repealed|void
        |rescinded|over now)|(?:i|we) (?:hereby )?(?:withdraw|revoke|lift|cancel|rescind|take back)
        |(?:forget|disregard|ignore|drop|scrap) (?:the|that|my|this) (?:\w+ ){0,2}(?:rule|ban|limit
        |prohibition
        |restriction|constraint|instruction)|need(?: not|n['\u2019]t)|do(?: not|n['\u2019]?t) (?:have|need) to
        |no need|not (?:required|necessary|needed)|optional(?: now)?
        |nicht (?:mehr|länger) (?:verboten|untersagt|tabu|gültig|nötig|erforderlich|notwendig)
        |(?:gilt|gelten) nicht mehr|aufgehoben|zurückgenommen|widerrufen|hinfällig|nicht (?:nötig
        |erforderlich)
        |brauchs?t? (?:nicht|kein\w*)|ya no (?:está|están|rige|vale|se aplica|hace falta
        |es necesario)(?: prohib\w+)?
        |(?:queda|quedan|está|están) (?:levantad[oa]s?|retirad[oa]s?|anulad[oa]s?|revocad[oa]s?|sin efecto)
        |no hace falta|no es necesario|n['\u2019]est plus (?:interdite?|valable|en vigueur|nécessaire
        |obligatoire)
        |ne sont plus interdite?s|ne s['\u2019]applique plus
        |ne (?:vaut|valent|compte(?:nt)?|tient|tiennent) plus(?! \w)
        |(?:est|sont) (?:levée?s?|retirée?s?|annulée?s?|révoquée?s?|abrogée?s?)
        (?:, (?:elle|il)s? ne (?:\w+ ){1,2}plus)?|pas (?:besoin|nécessaire|obligatoire)""",
        r"""解除|撤回|取り消|無効|禁止ではな|禁止ではあり|必要(?:は|が)?(?:ない|ありません)
        |なくても(?:いい|よい|良い|構わ|かまわ)|撤销|撤銷|取消|作废|作廢
        |不再(?:禁止|需要|适用|適用|有效|必须|必須|要求)|不禁止|不必|无需|無需|不需要""",
    )
)
PERMITS = Wording(
    (
        r"""(?:you|we|anyone|anybody|everyone|everybody|they) (?:may|can)|(?:may|can) (?:now |again )?be
        |(?:is|are) (?:now |again )?(?:allowed|permitted|legal|fine|ok(?:ay)?|all right)|allowed|permitted
        |darf(?:st)?|dürf(?:en|t)|erlaubt|gestattet|zulässig|puede[ns]?|podemos|permitid[oa]s?|autorizad[oa]s?
        |peu[xt]|peuvent|pouve[zs]|pouvons|permise?s?|autorisée?s?""",
        r"""ても(?:いい|よい|良い|構|かま)|でも(?:いい|よい|良い|構|かま)|許可|可能です|解禁|可以|允许|允許|准许|准許|许可""",
    )
)
AGAIN = Wording(("again|once more|wieder|de nuevo|otra vez|(?:à|de) nouveau", "再び|また|重新|再次"))
RULE_NOUNS = Wording(
    (
        r"""(?:rule|ban|prohibition|restriction|constraint)s?(?: (?:about|on|against|that|for|of|to))?
        |(?:Verbot|Regel)(?: (?:von|für|gegen|über))?|(?:regla|norma|prohibición)(?: (?:de|sobre|contra))?
        |(?:règle|interdiction)(?: (?:de|sur|contre))?""",
        "規則|禁止令?|规则|禁令",
    )
)
"""Words with which a withdrawal refers to the rule that it withdraws."""
COMMANDS = Wording(
    (
        r"""always|must|ha(?:s|ve) to|immer|stets|muss|müss(?:en|t)|musst|siempre|debe[ns]?|debes|toujours
        |doit|doivent|devez|dois""",
        "必ず|いつも|常に|必须|必須|务必|務必|一定要|总是|總是|始终|始終",
    )
)

ASIDE = Wording(
    (
        r"""(?:in|under) no (?:case|circumstances)|on any account|auf (?:gar )?keinen Fall
        |unter keinen Umständen|en ningún caso|bajo ningun\w+ \w+|en aucun cas|sous aucun prétexte|surtout
        |sobre todo""",
        """绝对|絕對|绝不|絕不|千万|千萬|一定|务必|務必|[请請把将將]|要(?!求)|应该?|應該?|得(?!到)|[会會]
        |[我咱他]?[们們]|我|用[户戶]|ユーザー?|私(?:たち)?|我々""",
    )
)
"""What stresses a demand; in Japanese and Chinese also what says whose it is: compare MODAL_WORDS."""

GERMAN_PARTICIPLE = re.compile(
    r"(?:(?<=\b)|(?<=\b(?:an|ab|um))|(?<=\b(?:auf|aus|ein|vor|mit)))ge(?=\w{4,}(?:t|en)\b)", re.IGNORECASE
)
"""What a German participle has before the stem of its verb: `gelöscht` of `löschen`."""

# --- decisions ---

DECIDES = Wording(
    (
        r"""decid\w+|decision|cho(?:ose|se|sen)s?|opt(?:s|ed) for|pick(?:s|ed)|select(?:s|ed)|settled on
        |we(?:nt|re going) with
        |entsch(?:ied|eid)\w*|beschl(?:oss|ieß)\w*|(?:aus)?(?:ge)?wählt(?:e[nt]?)?
        |décid\w+|décision|chois\w+|opté\w*|decidi\w+|decisión|elegi\w+|eligi\w+|escogi\w+""",
        "ことにし(?:た|まし)|決め|決定|選[びんぶ]|採用|决定|选择|選擇|选用|選用|采用",
    )
)
REJECTS = Wording(
    (
        r"""rul(?:ed?|es|ing) out|reject(?:s|ed)?|dismissed|turned down|verworfen|verwarf\w*|abgelehnt
        |ausgeschlossen|renonc\w+|écart\w+|rejet\w+|descart\w+|rechaz\w+""",
        "見送|却下|放弃|放棄|否决|否決|弃用|棄用",
    )
)
"""Decisions against something, in one word."""
AGAINST = Wording(("against|gegen|en contra de|contra|contre", "反对|反對"))
PREFERS = Wording(("over|plutôt que|antes que|lieber als", "より|而非"))
"""What stands between what is chosen and what is not."""
USING = Wording(
    (
        r"""us(?:e|es|ed|ing)|go(?:ing)? with|verwenden?|verwendet|benutz\w+|(?:ein)?nutzen|einsetzen|usa[rn]?
        |utili[sz]\w+""",
        "使用|使[うわい]|用",
    )
)
"""What is decided on is used."""

# --- changes ---

CHANGE = (
    r"""now|updated?|changed|moved|switched|rotated|rebased|migrated|reassigned|rescheduled|postponed
    |lowered|reduced|renamed|replaced|correction|jetzt|geändert|verschoben|ahora|cambi\w+|maintenant
    |changé\w*""",
    "変更|になりました|现在|現在|改为|改為|改成",
)
CHANGES = Wording(
    CHANGE,
    (
        r"""new|rotation|raised|extended|instead|rather|from now on|no longer|nun|neue?[rsmn]?
        |ab sofort|statt|künftig|nuev[oa]|en adelante|désormais|dorénavant|nouve\w+|chang\w+""",
        "今後|これから|新しい|今后|新的",
    ),
)
REPLACES = Wording(
    (
        r"""instead|no longer (?:works?|valid|counts?|used)|rotat(?:ed|ion)|changed|moved|switched|replaced
        |renamed
        |reassigned|rescheduled|postponed|migrated|rebased|raised|lowered|extended|reduced|retired|correction
        |not .{1,40} any ?more|geändert|verschoben|statt(?:dessen)?|ersetzt|cambi\w+|reemplaz\w+|en vez de
        |en lugar de
        |changé\w*|remplac\w+|à la place|au lieu""",
        "変更|に代わ|の代わり|になりました|改为|改為|改成|换成|換成|代替",
    )
)
"""Wordings that explicitly replace one value by another; those of CHANGES may add a value instead."""
MENTIONS = Wording(
    (
        r"""when(?:ever)?|if|before|after|once|until|unless|as soon as|that|which|what|whether|each|every|any
        |without|wenn|falls|sobald|bevor|ehe|nachdem|dass|ob|jede[nmrs]?|alles?|ohne|cuando|si|antes|después
        |que|cada|sin|quand|lorsque|avant|après|qu(?:i|e|['\u2019])|chaque|sans""",
        r"""たら|れば|場合|とき|こと|前|(?<!今)後|(?<!今)后|時(?!間|刻|区)|时(?!间|刻|区)|如果|若|每|所有""",
    )
)
"""What makes a clause only mention a change: when it happens, that it did, or to which of many things."""
CLAUSE = re.compile(r"[^,;\uff0c\uff1b、。]+")
"""A part of a sentence, in which a change is only mentioned or said to be made."""
ARTICLE = re.compile(
    r"\s*(?:the|our|my|der|die|das|unsere?|meine?|el|la|los|las|nuestr[oa]s?|mi|le|les|l['\u2019]|notre|nos|mon|ma)\b",
    re.IGNORECASE,
)
"""An article or possessive at the beginning: the words after it name a single thing."""
_IS = ("is|are|ist|lautet|es|son|est|sont", "[:=]|は|是|为|為")
COPULA = re.compile(any_of(_IS, ("will be|sind|será|sera", "")))
LIES = Wording(
    (
        r"""(?:runs?|lives?|lies|stands?|belongs?) (?:at|in|on|under|to)|(?:läuft|liegt|steht) (?:in|auf
        |unter)
        |(?:corre|está|vive) en|(?:tourne|est|se trouve) (?:à|dans|sur)""",
        "位于|位於|运行在|運行在",
    )
)
"""Verbs between a thing and its place."""
_USE = r"^\W*(?:use|verwende|nimm|usa|utilise[zr]?)\b"
USES = re.compile(_USE, re.IGNORECASE)
USES_AS = re.compile(rf"{_USE}\s+[\ue000-\uf8ff]\s+(?:as|als|como|comme) (?P<name>[^.;]+)", re.IGNORECASE)
"""A demand to use a value, written as a private-use character, as something (the group ``name``)."""

# --- claims about what the user said ---

_ASKED = (
    r"(?:said|says|state[ds]|mention|ask|request|want|need|tell|told|instruct|order|demand|requir"
    r"|command|direct|insist|prefer|wish)\w*"
    r"|(?:bat|gebeten|bittet|fordert\w*|verlangt\w*|wollte|will|wünscht\w*|beauftragt\w*|angewiesen|fragt\w*|gefragt)"
    r"|(?:pid\w+|solicit\w+|orden\w+|quier\w+|quiso|exig\w+|pregunt\w+|indic\w+|instruy\w+)"
    r"|(?:a )?(?:demand\w+|ordonn\w+|veut|voulai\w+|souhait\w+|exig\w+|réclam\w+)"
)
_AGREED = (
    r"(?:approv|confirm|authori[sz]|agre|allow|permit|accept|consent|grant|sign)\w*"
    r"|(?:genehmigt\w*|bestätigt\w*|erlaubt\w*|zugestimmt|stimmte|autorisiert\w*|gestattet\w*)"
    r"|(?:aprob\w+|confirm\w+|autoriz\w+|acept\w+|permit\w+)"
    r"|(?:a )?(?:approuv\w+|confirm\w+|autoris\w+|accept\w+|permis)"
)
_DECIDED = (
    r"(?:decid|cho[os]s?e|opt(?:ed|s) for|pick|select|settled on|went with|prefer"
    r"|rul(?:ed?|es) out|reject|dismiss|turned down)\w*"
    r"|(?:entschied\w*|entschieden|beschloss|wählte|verwarf)"
    r"|(?:decid\w+|elig\w+|eleg\w+|escog\w+|descart\w+|rechaz\w+)"
    r"|(?:a )?(?:décid\w+|chois\w+|opté|écart\w+|renonc\w+|rejet\w+)"
)
_USER = (
    r"\b(?:user|client|customer|human|benutzer(?:in)?|nutzer(?:in)?|anwender(?:in)?|usuari[oa]|cliente"
    r"|utilisat(?:eur|rice))s?\b(?! (?:constraints?|requirements?)\b)"
)
_BETWEEN = (
    r"(?: (?:is|was|has|had|have|been|also|then|explicitly|clearly|later|already"
    r"|hat|hatte|ha|había|se|le|lui|avait)){0,3} "
)
_UNSPACED_USER = r"(?:ユーザー?|用户|用戶|客户|客戶)"
CLAIM = re.compile(
    rf"{_USER}{_BETWEEN}(?:{_ASKED})(?P<asked>[^\n]*)"
    rf"|{_USER}{_BETWEEN}(?:{_AGREED})(?P<agreed>[^\n]*)"
    rf"|{_USER}{_BETWEEN}(?:{_DECIDED})(?P<decided>[^\n]*)"
    rf"|{_USER} (?:hat|hatte) (?P<decided_before>[^\n.;]*) (?:entschieden|beschlossen|gewählt|verworfen"
    r"|abgelehnt)\b"
    rf"|{_USER} (?:hat|hatte) (?P<agreed_before>[^\n.;]*) (?:gebeten|verlangt|gefordert|beauftragt|angewiesen"
    r"|genehmigt|bestätigt|erlaubt|zugestimmt)\b"
    rf"|{_UNSPACED_USER}([^\n。]*(?:依頼|要求|指示|求め|頼|请求|請求|命令|希望|让|讓|请|請))(?P<asked_unspaced>[^\n。]*)"
    rf"|{_UNSPACED_USER}([^\n。]*(?:承認|許可|同意|確認|批准|确认|允许|允許|授权|授權))(?P<agreed_unspaced>[^\n。]*)"
    rf"|{_UNSPACED_USER}([^\n。]*(?:決め|決定|選[びんぶ]|採用|决定|选择|選擇|放弃|放棄|却下))(?P<decided_unspaced>[^\n。]*)",
    re.IGNORECASE,
)
"""A claim that the user asked for something, agreed to it or decided it.

The last group that matched tells which.
"""
NEXT_CLAUSE = re.compile(
    r"[;.!?。](?:\s|$)|,? (?:and|but|so|while|which|und|aber|y|pero|et|mais) (?:then )?(?:the )?"
    r"(?:assistant|agent|it|model|tool|der|die|das|el|la|le|l['\u2019])\b|\bassistant\b",
    re.IGNORECASE,
)
TELLS = re.compile(
    r"\b(?:wrote|writes?|written|said|says|sent|sends|repl(?:y|ies|ied)|answer(?:s|ed)|e-?mail(?:s|ed)?|letter"
    r"|message|quote[ds]?|schr(?:eibt|ieb|ieben)|geschrieben|sagt(?:e|en)?|antwortete?|schickte?|brief|mail|zitat"
    r"|écri(?:t|vait|vent)|a dit|dit|répond|a répondu|envoi(?:e|é)|courriel|lettre|citation"
    r"|escrib(?:e|ió|en)|escrito|dice|dijo|responde|respondió|envió|correo|carta|cita)\b"
    r"|(?:書い|書き|言っ|返信|返事|メール|手紙|引用|写道|寫道|写信|說|说|回复|回覆|邮件|郵件|来信|來信)"
)
"""Words, in lower case, before a colon that somebody else's words follow."""
CLAUSE_END = re.compile(r"[,;:\uff0c\uff1b、。]|\b(?:and|but|while|und|aber|y|pero|et|mais)\b|[\u2013\u2014]")
REASON = Wording(
    (
        r"""because|since|so that|given that|weil|damit|parce que|puisque|afin|porque|ya que
        |puesto que|para que""",
        "因为|因為|所以|ので|から|ため",
    )
)
"""The beginning of a reason, which belongs to no rule."""
DECLINES = re.compile(
    r"\W*(?:(?:(?:unfortunately|i(?: a|['\u2019])m afraid|i apologi[sz]e"
    r"|(?:i(?: a|['\u2019])m )?(?:\w+ )?sorry),? (?:but )?)?"
    r"(?:as an ai\b[^.!?]{0,40}, )?"
    r"i(?: can(?:not|['\u2019]?t| not)| won['\u2019]?t| will not|(?: a|['\u2019])m (?:unable|not able) to"
    r"| (?:must|have to) decline to) (?:\w+ )?"
    r"(?:assist|comply|condense|create|do|fulfil+|generate|help|process|provide|share|summari[sz]e|write)\b"
    r"|(?:es )?tut mir (?:\w+ )?leid,? [^.!?]{0,60}\bnicht\b|leider (?:kann|darf) ich [^.!?]{0,60}\bnicht\b"
    r"|(?:je suis )?(?:vraiment )?désolée?,? (?:mais )?je ne (?:peux|puis)\b"
    r"|je ne (?:peux|puis) (?:pas )?(?:vous )?(?:aider|fournir|résumer)"
    r"|lo siento,? (?:pero )?no puedo\b|no puedo (?:ayudar|proporcionar|resumir)"
    r"|(?:大変)?申し訳(?:あり|ござい)ません|(?:非常|很)?(?:抱歉|对不起|對不起)"
    r"|我(?:无法|無法|不能)(?:提供|协助|協助|帮|幫|总结|總結))",
    re.IGNORECASE,
)
"""The beginning of an answer in which a model says that it will not do what it was asked."""
ASSENT = Wording(
    (
        r"""yes|yep|yeah|ok(?:ay)?|sure|approved?|confirm(?:ed)?|agreed?|go ahead|do it|please do|fine
        |sounds good|perfect|correct|exactly|great|ja|gerne|einverstanden|genehmigt|mach das|genau|sí|si
        |vale|de acuerdo|adelante|claro|oui|d['\u2019]accord|vas-y|allez-y|parfait|bien sûr""",
        "はい|お願い|了解|承認|いいです|大丈夫|好的?|可以|同意|批准|是的|没问题|沒問題|行",
    )
)
CONSTRAINTS_HEADING = re.compile(
    r"^\W*user(?:'s)? (?:constraints?|requirements?)\W*(?::\W*(?P<rest>.*))?$", re.IGNORECASE
)
NOTHING_STATED = re.compile(
    r"^\W*(?:none|n/?a|not specified|no(?:ne)? (?:specific|given|stated).*)\W*$", re.IGNORECASE
)
