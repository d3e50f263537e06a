"""Words with which people demand, forbid, allow, withdraw, change and claim something.

Each list has first the wordings of languages with spaces between words, then those of languages without.
"""

import re

from proxy.core.text.lexicon.words import any_of


def _pattern(*words: tuple[str, str]) -> re.Pattern[str]:
    return re.compile(any_of(*words), re.IGNORECASE)


def _folded(*words: tuple[str, str]) -> re.Pattern[str]:
    return re.compile(any_of(*words))  # for texts in lower case, as many texts are searched for it


# --- negations, and wordings that only look like one ---

_PROHIBITION = (
    r"""forb[aio]d\w*|prohibit(?:s|ed)?|disallow(?:s|ed)?|ban(?:s|ned)?|not allowed|off[- ]limits
    |verb(?:iete[nt]?|oten)|untersag\w+|prohib\w+|interdi\w+""",
    "禁止|严禁|嚴禁",
)
_NEGATION = (
    r"""not?|never|none|nothing|nobody|neither|nor|cannot|without|avoid(?:s|ed|ing)?|refrain(?:s|ed)?
    |stop(?:s|ped)?|taboo|stay (?:away|out|off|clear)|steer clear|keep (?:away|out|off|clear)|hands off
    |nicht|nichts|nie|niemals|kein(?:e[nmrs]?)?|niemand|ohne|vermeide[nt]?|nunca|jamás
    |ningun[oa]?|ningún|nada|nadie|ni|sin|evit\w+|pas|jamais|aucune?|rien|personne|sans|évite[rzs]?""",
    r"""n['\u2019]t\b|\bn['\u2019](?=[aeéiouh])|ない|なかった|せず|ません|ダメ|だめ|不|没|沒|别(?!的|人)
    |別(?!的|人)|勿|莫|无|無|禁|避免|避け""",
)
NEGATION = _pattern(_PROHIBITION, _NEGATION)
RELIEF = _pattern(
    (
        r"""only|unless|until|except|exclude[sd]?|instead|rather than|refuse[sd]?|reject(?:s|ed)?|deny
        |denie[sd]|block(?:s|ed)?|prevent(?:s|ed)?|remove[sd]?|free of|at most|limit(?:s|ed)?|other than
        |nur|außer|statt|lehnt\w*|abgelehnt|höchstens|solo|sólo|salvo|excepto|en lugar|rechaz\w+|seulement
        |sauf|uniquement|au lieu|refus\w+|rejet\w+""",
        "のみ|だけ|以外|拒|只|仅|僅|除",
    )
)
"""A sentence with one of these may mean the same as one with a negation."""
NEGATED_DEMAND = _pattern(
    (
        r"""(?:do not|don['\u2019]t|never) (?:forget|hesitate|worry|mind)
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
TAKEN_BACK = _pattern(
    _PROHIBITION,
    (
        r"""(?:must|shall|should|may|need|do|does|did) ?(?:not|n['\u2019]t)|never
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

WITHDRAWS = _pattern(
    (
        r"""no longer (?:forbidden|prohibited|banned|disallowed|off[- ]limits|appl(?:y|ies)|holds?|valid
        |in force
        |required|needed|necessary|mandatory|binding)|not (?:forbidden|prohibited|banned) any ?(?:more|longer)
        |(?:is|are|was|were|been|be|being) (?:hereby )?(?:lifted|withdrawn|revoked|cancell?ed|repealed|void
        |rescinded|over now)|(?:i|we) (?:hereby )?(?:withdraw|revoke|lift|cancel|rescind|take back)
        |(?:forget|disregard|ignore|drop|scrap) (?:the|that|my|this) (?:\w+ ){0,2}(?:rule|ban|limit
        |prohibition
        |restriction|constraint|instruction)|need(?: not|n['\u2019]t)|do(?: not|n['\u2019]t) (?:have|need) to
        |no need|not (?:required|necessary|needed)|optional(?: now)?
        |nicht (?:mehr|länger) (?:verboten|untersagt|gültig|nötig|erforderlich|notwendig)
        |(?:gilt|gelten) nicht mehr|aufgehoben|zurückgenommen|widerrufen|hinfällig|nicht (?:nötig
        |erforderlich)
        |brauchs?t? (?:nicht|kein\w*)|ya no (?:está|están|rige|vale|se aplica|hace falta
        |es necesario)(?: prohib\w+)?
        |(?:queda|quedan|está|están) (?:levantad[oa]s?|retirad[oa]s?|anulad[oa]s?|revocad[oa]s?|sin efecto)
        |no hace falta|no es necesario|n['\u2019]est plus (?:interdite?|valable|en vigueur|nécessaire
        |obligatoire)
        |ne sont plus interdite?s|ne s['\u2019]applique plus|(?:est|sont) (?:levée?s?|retirée?s?|annulée?s?
        |révoquée?s?|abrogée?s?)|pas (?:besoin|nécessaire|obligatoire)""",
        r"""解除|撤回|取り消|無効|禁止ではな|禁止ではあり|必要(?:は|が)?(?:ない|ありません)
        |なくても(?:いい|よい|良い|構わ|かまわ)|撤销|撤銷|取消|作废|作廢
        |不再(?:禁止|需要|适用|適用|有效|必须|必須|要求)|不禁止|不必|无需|無需|不需要""",
    )
)
PERMITS = _pattern(
    (
        r"""(?:you|we|anyone|anybody|everyone|everybody|they) (?:may|can)|(?:may|can) (?:now |again )?be
        |(?:is|are) (?:now |again )?(?:allowed|permitted|legal|fine|ok(?:ay)?|all right)|allowed|permitted
        |darf(?:st)?|dürf(?:en|t)|erlaubt|gestattet|zulässig|puede[ns]?|podemos|permitid[oa]s?|autorizad[oa]s?
        |peu[xt]|peuvent|pouve[zs]|pouvons|permise?s?|autorisée?s?""",
        r"""ても(?:いい|よい|良い|構|かま)|でも(?:いい|よい|良い|構|かま)|許可|可能です|解禁|可以|允许|允許|准许|准許|许可""",
    )
)
AGAIN = _pattern(("again|once more|wieder|de nuevo|otra vez|(?:à|de) nouveau", "再び|また|重新|再次"))
RULE_NOUNS = _pattern(
    (
        r"""(?:rule|ban|prohibition|restriction|constraint)s?(?: (?:about|on|against|that|for|of|to))?
        |(?:Verbot|Regel)(?: (?:von|für|gegen|über))?|(?:regla|norma|prohibición)(?: (?:de|sobre|contra))?
        |(?:règle|interdiction)(?: (?:de|sur|contre))?""",
        "規則|禁止令?|规则|禁令",
    )
)
"""Words with which a withdrawal refers to the rule that it withdraws."""
COMMANDS = _pattern(
    (
        r"""always|must|ha(?:s|ve) to|immer|stets|muss|müss(?:en|t)|musst|siempre|debe[ns]?|debes|toujours
        |doit|doivent|devez|dois""",
        "必ず|いつも|常に|必须|必須|务必|務必|一定要|总是|總是|始终|始終",
    )
)

# --- wordings that make a sentence binding ---
# FIRM says explicitly what must or must not be. PLAIN states a limit, a preference, or the occasion on which
# something is to be done. STATED only says how things are now. English "don't" and "never" are firm in an
# instruction, not in a report ("I never got it"). All three are searched for in texts in lower case.

_CHANGE = (
    r"""now|updated?|changed|moved|switched|rotated|rebased|migrated|reassigned|rescheduled|postponed
    |lowered|reduced|renamed|replaced|correction|jetzt|geändert|verschoben|ahora|cambi\w+|maintenant
    |changé\w*""",
    "変更|になりました|现在|現在|改为|改為|改成",
)
FIRM = _folded(
    _PROHIBITION,
    (
        r"""must(?:n['\u2019]t)?|shall not|under no circumstances|no(?:t)? (?:more|less) than|from now on
        |going forward|for the rest of|mandatory|at all times|no exceptions?|non-negotiable|make sure
        |be sure to|no matter what|important constraint|(?:you|we) (?:should|may|can|are) not
        |is not to be|(?<!\bi )(?<!\bwe )(?<!ve )(?<!has )(?<!as )(?<!ad )never
        |(?:please|and|but|so|also|then|just|or|you) (?:do not|don['\u2019]t)
        |(?:please|you|and|but|should|must) always
        |(?:remember|keep in mind|bear in mind|note)(?: that| to)
        |only (?:\w+ )?(?:may|can|when|if|after|with|in|use|the)
        |muss|müssen|musst|niemals|auf keinen fall|unter keinen umständen|ab (?:jetzt|sofort)
        |von (?:nun|jetzt) an|künftig|höchstens|nicht mehr als|ausschließlich|unbedingt
        |merk(?:e|en sie)? dir|denk(?:e|en sie)? daran|vergiss nicht
        |bitte (?:immer|nie|nur|nicht|kein\w*)
        |d(?:arf(?:st)?|ürfen)\b(?:[^.!?]|\.(?=\w)){0,60}\b(?:nicht|nur|kein\w*)
        |debes?|deben|nunca|jamás|en ningún caso|bajo ningun\w+|a partir de ahora|de ahora en adelante
        |como máximo|no más de|obligatori\w|asegúrate|recuerda|no olvides|únicamente|por favor,? no
        |do(?:it|is|ivent)|devez|jamais|en aucun cas|sous aucun prétexte|désormais|dorénavant
        |à partir de maintenant|au maximum|pas plus de|obligatoire\w*|assure-toi|assurez-vous
        |rappelle-toi|rappelez-vous|souviens-toi|n['\u2019]oublie\w*|uniquement
        |n(?:e |['\u2019])\w+(?: \w+)? pas""",
        r"""(?:^|[,;:.\u2013-] ?)(?:do not|don['\u2019]t|always)\b
        |\b(?:remember|keep in mind|bear in mind|note)[,:]|必ず|絶対|決して|てはいけ|てはなら|てはだめ
        |ではいけ|ないでください|しないで|なければなら|今後|これからは|以内に|を超えない|覚えておいて
        |忘れないで|必须|必須|务必|務必|一定要|绝不|絕不|绝对不|絕對不|不要|不得|不许|不許|不可以|切勿
        |请勿|請勿|永远|永遠|只能|从现在|從現在|今后|以后都|以後都|不超过|不超過|不能超过|不能超過
        |最多|记住|記住""",
    ),
)
PLAIN = _folded(
    (
        r"""always|prefer\w*|avoid|instead of|rather than|without (?:asking|my|explicit|first)|unless
        |until|at most|at least|limit(?:ed)? to|whenever|(?:every|each) time|before you|after you
        |when you|as soon as you
        |(?:in (?:all|every|your|any)|every|any) (?:repl|answer|response|message)\w*|every number
        |stick to|no longer|stop \w+ing|only|exactly|i(?:['\u2019]d| would) (?:like you|rather|prefer)
        |i want (?:you|all|every|the)|needs? (?:approval|to be)|requires?|required|allowed|cap(?:ped)?
        |ceiling|deadline|budget|maximum|minimum|rule|constraint|ever|nobody else|confirm|approv\w+
        |immer|nie|stets|nur|bevorzug\w+|lieber|vermeide\w*|statt|ohne (?:rückfrage|meine|zu)|bevor du
        |wenn du|sobald du|jedes mal|mindestens|maximal|soll(?:st|en)?
        |siempre|solo|sólo|solamente|presupuesto|plazo|prefiero|prefiere|evita\w*|en lugar de
        |sin (?:preguntar|mi)
        |antes de|cuando|cada vez|al menos|no \w+(?:es|as|ís|éis)
        |toujours|seulement|préfère\w*|évite\w*|au lieu de|plutôt que|sans (?:demander|mon)|avant de
        |quand tu|lorsque|chaque fois|au moins|au plus|il faut""",
        r"""^(?:for|in) [^,.;:]{3,40}, (?:please )?(?:use|keep|write|reply|answer
        |show|give|put|state|report|include)\b
        |常に|いつも|だけ|のみ|ようにして|避けて|てほしい|前に|ください|以下|以上|お願いします|始终
        |始終|予算|期限|预算|預算|总是|總是|只(?:用|要|在|需)|仅|僅|避免|优先|優先|更喜欢|更喜歡|每次|至少|之前
        |[请請](?:用|把|在|先)|不能|别(?!的|人)""",
    ),
)
STATED = _folded(
    _CHANGE,
    (
        r"""actually|for (?:all|every|any|future)|when(?:ever)?|my \w+ (?:is|are)|call(?:ed)? me
        |we (?:use|call|refer)|ab heute|mein\w* \w+ ist|mi \w+ es|m(?:on|a) \w+ est""",
        r"""^(?:use|keep|write|reply|answer|respond|format|include|exclude|send|report|put|end|start|begin
        |show|give|ensure|limit|follow|treat|skip|wait|ask|save|cite|assume)\b
        |私の|我的""",
    ),
)
CHANGES = _pattern(
    _CHANGE,
    (
        r"""new|rotation|raised|extended|instead|rather|from now on|no longer|nun|neue?[rsmn]?
        |ab sofort|statt|künftig|nuev[oa]|en adelante|désormais|dorénavant|nouve\w+|chang\w+""",
        "今後|これから|新しい|今后|新的",
    ),
)
REPLACES = _pattern(
    (
        r"""instead|no longer (?:works?|valid|counts?|used)|rotat(?:ed|ion)|changed|moved|switched|replaced
        |renamed
        |reassigned|rescheduled|postponed|migrated|rebased|raised|lowered|extended|reduced|retired|correction
        |not .{1,40} any ?more|geändert|verschoben|stattdessen|ersetzt|cambi\w+|reemplaz\w+|en vez de
        |en lugar de
        |changé\w*|remplac\w+|à la place|au lieu""",
        "変更|に代わ|の代わり|になりました|改为|改為|改成|换成|換成|代替",
    )
)
"""Wordings that explicitly replace one value by another; those of CHANGES may add a value instead."""
ARTICLE = re.compile(
    r"\s*(?:the|our|my|der|die|das|unsere?|meine?|el|la|los|las|nuestr[oa]s?|mi|le|les|l['\u2019]|notre|nos|mon|ma)\b",
    re.IGNORECASE,
)
"""An article or possessive at the beginning: the words after it name a single thing."""
_IS = ("is|are|ist|lautet|es|son|est|sont", "[:=]|は|是|为|為")
COPULA = _folded(_IS, ("will be|sind|será|sera", ""))
LIES = _pattern(
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
QUESTION = re.compile(r"[?\uff1f][\"”»」』)\]]*$|か。?$|[吗呢嗎]。?$")

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
    rf"|{_USER} (?:hat|hatte) (?P<agreed_before>[^\n.;]*) (?:gebeten|verlangt|gefordert|beauftragt|angewiesen"
    r"|genehmigt|bestätigt|erlaubt|zugestimmt)\b"
    rf"|{_UNSPACED_USER}([^\n。]*(?:依頼|要求|指示|求め|頼|请求|請求|命令|希望|让|讓|请|請))(?P<asked_unspaced>[^\n。]*)"
    rf"|{_UNSPACED_USER}([^\n。]*(?:承認|許可|同意|確認|批准|确认|允许|允許|授权|授權))(?P<agreed_unspaced>[^\n。]*)",
    re.IGNORECASE,
)
"""A claim that the user asked for or agreed to something; the last group that matched tells which."""
NEXT_CLAUSE = re.compile(
    r"[;.!?。](?:\s|$)|,? (?:and|but|so|while|which|und|aber|y|pero|et|mais) (?:then )?(?:the )?"
    r"(?:assistant|agent|it|model|tool|der|die|das|el|la|le|l['\u2019])\b|\bassistant\b",
    re.IGNORECASE,
)
CLAUSE_END = re.compile(r"[,;:\uff0c\uff1b、。]|\b(?:and|but|while|und|aber|y|pero|et|mais)\b|[\u2013\u2014]")
ASSENT = _pattern(
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
