"""Character ranges of scripts, words with little meaning, words that matter, and numbers in words."""

import re
from collections.abc import Mapping

from proxy.core.text.lexicon.patterns import Wording

# --- scripts without spaces between words ---

HIRAGANA = "\u3040-\u309f"
KATAKANA = "\u30a0-\u30ff"
HAN = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_OTHERS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\uac00-\ud7af"
"""Thai, Lao, Burmese and Khmer; and Korean, whose particles are attached to its words."""
UNSPACED = HIRAGANA + KATAKANA + HAN + _OTHERS
"""All of these scripts, to be put into a character class."""
PAIRED = KATAKANA + HAN + _OTHERS
"""The scripts that are read in pairs of characters: all but hiragana, which is mostly grammar."""

# --- words with little meaning ---

FUNCTION_WORDS = frozenset(
    """a all also am an and any are as at be been but by can do does don't dont each ever every for from i if
    in into is it its just least less me more most my never no not of on only or our please should so than
    that the their then these this those to was we were will with without would you your
    auf bitte das der des die du ein eine es für ist kein keine mit nicht nie niemals nur oder ohne sind und
    zu
    dans de est et jamais la le les ne ou pas pour que sans son sont sur un une
    del el las los nunca o por sin solo una y""".split()
)
"""Words that do not distinguish any two sentences."""
REPLACING_WORDS = frozenset(
    "instead jetzt ab statt stattdessen ahora lugar vez partir désormais dorénavant lieu".split()
)
"""Words of what says that one value replaces another, from when on: compare REPLACES."""
LIGHT_WORDS = frozenset(
    """about again because being could did doing done else few had has have having he her here hers him
    his how nor off once other out over own s same she some such t them there they through too under up
    very what when where which while who whom whose why
    aber als auch aus bei bist da dann dass dein dem den dich dir durch einem einen einer eines er habe
    haben hat hatte ich ihm ihn ihr im ja kann man mein mich mir nach noch ob schon sein sich sie um uns
    unser unter vom von wann war waren warum welche welcher welches wem wen wenn wer werden wie wir wird wo
    womit wurde wurden zum zur über
    au aussi aux avait avec ce ces cet cette combien comme d elle elles en fut il ils j je l leur leurs lui
    ma mais mes moi mon n nous ont où par plus pourquoi qu quand quel quelle quelles quels qui quoi sa se
    ses sous ta te tes toi ton très tu vous à étaient était été être
    al como con cual cuales cuando cuál cuáles cuándo cuánto cómo donde dónde ella ellos era eran esta
    este está están tiene tienen
    esto estos fue fueron ha han hay había lo mi muy más nos para pero porque quien quién qué ser si sobre
    su sus también u unas unos ya""".split()
)
"""Words with little meaning in a claim or a question; rules are so short that these may distinguish them."""
OPENINGS = frozenset(
    """am and anytime are as at but by bye can cheers congrats could dear did do does for from glad goodbye
    had has have he hello her hey hi his how i if in is it let maybe my near no nope now ok okay on or our
    please she should so sorry sure thank thanks that their then these they this those to via was we welcome
    well were what when where who whoa why with woah would wow yeah yep yes you your
    aber bitte danke hallo ich ja mein nein und unser wenn wir
    bonjour et je mais merci nous oui salut vous gracias hola pero yo""".split()
)
"""Words that begin a sentence, and no name, where a name follows."""
WORDS_OF_OCCASION = frozenset("after before during until bin bis vor comment".split())
"""Words that matter in a rule or a claim, but not for what a question is about. Some are content words in
another language (`bin`, `comment`)."""
PREPOSITIONS = frozenset(
    """about at by for from in into of off on out over through under up with without
    auf aus bei durch für mit nach ohne unter um vom von zum zur über
    avec dans par pour sans sous sur con para por sin sobre""".split()
)
"""Words that distinguish one act from another: over the bridge, under the bridge."""
OF = frozenset("of for on in von vom der für auf de del para en du des pour sur dans".split())
"""Words before the owner of something, or before what money is spent on."""
LINKING = frozenset("の的之")
"""Characters between an owner and what belongs to it."""
MODAL_WORDS = frozenset(
    """may might must shall us user users want wanted wants anwender benutzer darf darfst dürfen können muss
    müssen musst nutzer soll sollen sollst sollte doit doivent dois faut peut peuvent plaît utilisateur
    utilisatrice debe deben debes favor puede pueden usuaria usuario""".split()
)
"""Words that say that a sentence binds, and whom, but not what it demands."""
CLAIM_WORDS = frozenset(
    """allow allowed allows asked assistant client constraint constraints customer like need needed
    needs permit permitted require required requires said told asistente autorisé cliente erlaubt
    permitido""".split()
)
"""Words that say that somebody said, asked for or allowed something."""
CLAIM_PAIRS = frozenset("ユー ーザ ザー 用户 用戶 使用 必ず 必须 必須 可以 允许 允許 許可 要求".split())
STATE_WORDS = frozenset(
    """always current currently former important latest new now old previous quick still update working
    aktuelle alte immer neue ancien nouveau toujours actual nuevo siempre viejo""".split()
)
"""Words that say that something holds now, held before, or always holds."""
DEMANDING_VERBS = frozenset(
    """display express format get give has have keep let make need needs print put report require requires run
    send set show state tell use write nenne nimm schreibe verwende zeige écris mets montre utilise escribe
    muestra pon usa""".split()
)
"""Verbs that do not distinguish any two demands."""
COURTESY = Wording(
    (
        r"""thank(?:s| you)|(?:so|very) much|you(?:['\u2019]re| are) (?:very |most )?welcome|hello|hi|hey
        |good (?:morning|afternoon|evening|question|luck)|(?:a|your) (?:\w+ )?(?:day|evening|weekend)
        |wonderful|lovely|sorry|apologi[sz]e|inconvenience|glad|happy to|to help|your help|assist you
        |anything else|for contacting|appreciate|awesome|amazing|great|perfect|wow|haha|no (?:problem|worries)
        |enjoy|i (?:\w+ )?understand|frustrating|sounds|nice|cool|funny
        |(?:vielen|besten|herzlichen|schönen) dank|danke|herzlich|(?:sehr )?gern[e]?|kein problem|hallo
        |guten (?:morgen|tag|abend)|(?:einen )?schönen? (?:tag|abend|wochenende)|wunderbar|toll\w*|super
        |schön\w*|entschuldig\w+|unannehmlichkeiten|klingt|perfekt|(?:ihre|deine) hilfe|helfe|freue?|freude
        |wochenende|vollkommen|ärgerlich|gute frage|lustig|wie geht(?:['\u2019]s| es)
        |merci(?: (?:beaucoup|bien))?|bonjour|rebonjour|bonsoir|salut|bonne (?:journée|soirée|question)
        |bon week-end|je vous en prie|désolée?|excuser|désagrément|ravie?|parfait|formidable|plaisir
        |votre aide|vous aider|de vous|agréable|super|drôle|pas de (?:problème|souci)|frustration|allez-vous
        |(?:much[oa]s|muchísimas) gracias|gracias|hola|buen[oa]s (?:días|tardes|noches)|buen día|de nada
        |perdón|disculp\w+|molestias|encantad[oa]|perfecto|genial|maravillos[oa]|placer|su ayuda
        |ayudar(?:le|te|les)|estupend[oa]|gusto|sin problema|buena pregunta|fin de semana|divertido""",
        """谢谢|謝謝|多谢|多謝|感[谢謝]|辛苦了?|不客[气氣]|[没沒][关關][系係]|[没沒][问問][题題]
        |[您你]好|早上好|晚上好|下午好|抱歉|不好意思|[对對]不起|麻[烦煩](?:您|你|了)|太好了|真是太?
        |真的|特别|特別|非常|[开開]心|高[兴興]|愉快|快[乐樂]|[顺順]利|[帮幫]助|[乐樂]意|祝(?:您|你)?
        |周末|週末|歉意|不便|好[问問][题題]|理解|喜[欢歡]|[听聽]起[来來]|不[错錯]|哈{2,}|有意思|今天
        |ありがとう(?:ござい(?:ます|ました))?|こん(?:にち|ばん)は|おはよう(?:ございます)?|すみません
        |申し訳|恐れ入り|どういたしまして|お?手伝い|一日を|素敵|嬉し|楽し|喜んで|失礼|丁寧
        |誠に|本日|大変|本当|問い合わせ|不便|良い質問|面白|完璧|週末|今日""",
    )
)
"""Greetings, thanks and other courtesies: a sentence of these alone tells nothing."""
EVERYDAY_WORDS: Mapping[str, frozenset[str]] = {
    "en": frozenset("the and is are you to of in that it for what with this have can my not please".split()),
    "de": frozenset(
        "der die das und ist ich nicht ein eine zu mit auf für bitte wie was kann sie wir den".split()
    ),
    "es": frozenset("el la los las que de y es un una por para con no en mi como puede está qué".split()),
    "fr": frozenset("le la les des et est un une que pour dans pas je vous avec sur ce il mon qui".split()),
}
"""Common words by language, to detect the language of a text. The English ones mean nothing in the others."""
GERMAN = Wording(
    (
        r"""der|die|das|den|dem|ein|eine[nmrs]?|und|nicht|ist|für|mit|nie|auf|im|zu|darf|dürfen|muss|müssen
        |keine?""",
        "",
    )
)
"""A sentence with one of these is German, where a capital does not indicate a name."""
GERMAN_COMPOUNDS = "kosten|ausgaben|budget|frist|termin|passwort|zweig|sprache|zeitzone|stil"
"""Last parts of German compounds, which German writes as one word with the part before."""

ABBREVIATIONS = r"e\.g|i\.e|etc|vs|cf|bzw|z\.B|d\.h|usw|Dr|Mr|Mrs|Ms|St|No|Nr|approx|p\.ej|Sr|Sra|M|Mme"
"""Abbreviations, whose full stop does not end a sentence."""

# --- words that matter ---

_KEYWORDS = {
    "en": "error exception failed success completed done plan task approval denied warning",
    "ja": "エラー 例外 失敗 成功 完了 計画 タスク 承認 拒否 警告",
    "zh-Hans": "错误 异常 失败 成功 完成 计划 任务 批准 拒绝 警告",
    "zh-Hant": "錯誤 異常 失敗 成功 完成 計劃 任務 批准 拒絕 警告",
    "de": "fehler ausnahme fehlgeschlagen erfolg abgeschlossen erledigt aufgabe genehmig abgelehnt warnung",
    "es": "excepción falló fallido éxito completado terminado tarea aprobación denegado advertencia",
    "fr": "erreur échec échoué succès terminé tâche approbation refusé avertissement",
}

KEYWORDS: tuple[str, ...] = tuple(
    dict.fromkeys(word for words in _KEYWORDS.values() for word in words.split())
)
"""Words that give a message's content more weight. They are matched as substrings, ignoring case, so a stem
also matches its inflections; a word that several languages share is listed once. Everyday words ("hecho",
"fait") are left out."""
SUCCESSES: tuple[str, ...] = tuple(
    """success completed done 成功 完了 完成 erfolg abgeschlossen erledigt éxito completado terminado
    succès terminé""".split()
)
"""The keywords that report a success, matched in the same way."""
FOREIGN_FAILURES = "fehler|erreur|échec|excepción"
UNSPACED_FAILURES = "エラー|例外|失敗|错误|失败|錯誤"
UNCHANGED = re.compile(
    r"unchanged|(?:not|n't) (?:been )?(?:modified|changed)|no changes? since|same as (?:before|the last)"
    r"|nothing (?:has |was )?(?:changed|modified) since"
    r"|unverändert|inchangé|pas (?:été )?modifi|sin cambios|no ha cambiado"
    r"|変更(?:は|が)?(?:ありません|なし)|変わっていません|未(?:更改|变|變)|没有(?:变化|更改)|沒有(?:變化|更改)",
    re.IGNORECASE,
)
"""Wordings of results that refer to an earlier one: nothing has changed since."""
FAILURES = (f"error|exception|traceback|fatal|panic|failed|failure|{FOREIGN_FAILURES}", UNSPACED_FAILURES)
"""Words that report a failure, in scripts with and without spaces."""

# --- labels before a command and before its output, by agents that speak in plain text ---

OBSERVED = r"observations?|beobachtung|observación|観察|観測|観察結果|观察|觀察|观察结果"
"""Labels of what an agent observed."""
OBSERVATIONS = (
    rf"{OBSERVED}|(?:tool|command|execution|function|terminal|console|shell|bash|python)[ _-]"
    r"(?:output|results?|response|observation)|werkzeugausgabe|résultat de la commande"
    r"|実行結果|執行結果|执行结果|工具输出|工具輸出"
)
"""Labels that only a program's output has."""
OUTPUTS = (
    r"output|results?|response|stdout|stderr|ausgabe|ergebnis|salida|resultado|sortie|résultat"
    r"|出力|結果|结果|输出|輸出"
)
"""Labels of output that people also write before their own text."""
EXAMPLES = (
    r"demonstrations?|démonstrations?|demostraci(?:ón|ones)|examples?|beispiele?s?|exemples?|ejemplos?"
    r"|例|示範|示范|実演|デモ"
)
ENDS = r"\b(?:end|ende|fin)\b|終|终|結束|结束"
"""Titles of what is only shown, and what makes of such a title the line behind it."""
COMMANDS = (
    r"action(?: input)?|command|tool(?: input| call)?|aktion|befehl|acción|comando|commande|アクション|行動"
    r"|コマンド|行动|命令|动作|動作|操作"
)
"""Labels of what an agent does."""
INPUTS = (
    r"input|arguments?|args|parameters?|(?:aktions)?eingabe|argumente|entrada|argumentos?|entrée|入力|引数"
    r"|输入|輸入|参数|參數"
)
"""Labels of what it is done with."""

# --- numbers ---

NUMERALS: Mapping[str, str] = {
    "1": "one first once ein eins eine erste einmal uno una primero primera un une premier première",
    "2": "two second twice both pair zwei beide zweite zweimal dos ambos segundo segunda deux deuxième",
    "3": "three third drei dritte tres tercero tercer trois troisième",
    "4": "four fourth vier vierte cuatro cuarto quatre quatrième",
    "5": "five fifth fünf fünfte cinco quinto cinq cinquième",
    "6": "six sixth sechs sechste seis sexto sixième",
    "7": "seven seventh sieben siebte siete séptimo sept septième",
    "8": "eight eighth acht achte ocho octavo huit huitième",
    "9": "nine ninth neun neunte nueve noveno neuf neuvième",
    "10": "ten tenth zehn zehnte diez décimo dix dixième",
    "11": "eleven elf onze",
    "12": "twelve dozen zwölf dutzend doce docena douze douzaine",
    "15": "fifteen fünfzehn quince quinze",
    "20": "twenty zwanzig veinte vingt",
    "30": "thirty dreißig treinta trente",
    "40": "forty vierzig cuarenta quarante",
    "50": "fifty half hälfte fünfzig mitad cincuenta moitié cinquante",
    "60": "sixty sechzig sesenta soixante",
    "70": "seventy siebzig setenta",
    "80": "eighty achtzig ochenta",
    "90": "ninety neunzig noventa",
    "100": "hundred hundert cien ciento cent",
    "1000": "thousand tausend mil mille",
    "1000000": "million",
}
"""Number words by value, the English cardinal first."""
_NO_CARDINALS = frozenset(
    """first once erste einmal primero primera premier première second twice both pair zweite zweimal beide
    ambos segundo segunda deuxième third dritte tercero tercer troisième fourth vierte cuarto quatrième fifth
    fünfte quinto cinquième sixth sechste sexto sixième seventh siebte séptimo septième eighth achte octavo
    huitième ninth neunte noveno neuvième tenth zehnte décimo dixième dozen dutzend docena douzaine half
    hälfte mitad moitié""".split()
)
COUNTS = "|".join(word for word in " ".join(NUMERALS.values()).split() if word not in _NO_CARDINALS)
"""The number words that say how many, and not which one, how often or what part."""
MONTHS = (
    "Jan January Januar enero janvier Janvier",
    "Feb February Februar febrero février",
    "Mar March März Marz marzo mars",
    "Apr April abril avril",
    "May Mai mayo mai",
    "Jun June Juni junio juin",
    "Jul July Juli julio juillet",
    "Aug August agosto août",
    "Sep Sept September septiembre septembre",
    "Oct October Okt Oktober octubre octobre",
    "Nov November noviembre novembre",
    "Dec December Dez Dezember diciembre décembre",
)
"""Names of the months from January on, in the case in which they are written."""
NO_NAMES = frozenset(
    """monday tuesday wednesday thursday friday saturday sunday english german french spanish japanese
    chinese""".split()
)
"""English words with a capital that a text may use of what is said in other words: days and languages."""
HAN_NUMERALS: Mapping[str, str] = dict(
    zip("一二三四五六七八九十两兩百", "1 2 3 4 5 6 7 8 9 10 2 2 100".split(), strict=True)
)
SCALES = (
    (3, r"[kK](?![A-Za-z])|千"),
    (3, r" ?(?i:thousand|tausend|mille|mil)\b"),
    (4, "[万萬]"),
    (6, r"M(?![A-Za-z])|百万"),
    (6, r" ?(?i:millions?|millionen|millones|mill[oó]n|mio|mn)\b"),
    (8, "[億亿]"),
    (9, r"B(?![A-Za-z])"),
    (9, r" ?(?i:billions?|bn|milliarden?|milliards?)\b"),
)
"""Powers of ten and the patterns for them after a number. A single `M` or `B` is just as often a unit."""
ROUNDING = (
    r"about|around|approximately|approx\.?|roughly|nearly|almost|over|under|more than|less than|some"
    r"|circa|ca\.|etwa|ungefähr|rund|fast|über|unos|unas|aproximadamente|casi|más de|environ|presque|plus de"
    r"|près de|約|约|大约|大約|およそ|近く|~|≈|>|<|≥|≤"
)
"""Words and signs before a rounded number."""
LISTING = r",| and | und | y | et |、|和|と|;"
"""Separators between the items of a list."""
CURRENCY_CODES = (
    "USD|EUR|GBP|JPY|CNY|CHF|AUD|BRL|CAD|CZK|DKK|HKD|HUF|INR|KRW|MXN|NOK|NZD|PLN|RMB|SEK|SGD|TRY|TWD|ZAR"
)
CURRENCIES = (
    rf"{CURRENCY_CODES}|dollars?|euros?|pounds?|yen|dólares|libras|francs?|Franken|cents?|kr|zł|Kč|Euro"
)
UNSPACED_CURRENCIES = "円|元|圆|圓|块钱|人民币|人民幣|ドル|ユーロ|ポンド|美元|美金|欧元|歐元|日元|英镑|港币"
MAGNITUDES = (
    r"thousand|million|billion|tausend|Tausend|Millionen|Million|Mio\b\.?|Mrd\b\.?|Milliarden?|mil|millones"
    r"|millón|mille|millions|milliards?"
)
"""Powers of ten in words, after a number."""
UNIT_SIGNS = (
    "ms|µs|ns|kg|mg|µg|km|cm|mm|nm|[mcd][lL]|gb|mb|kb|[kKMGTP]?i?B|[KMGT]i|[kKMGT]?bit|px|[kMG]?Hz|[kMG]?Wh?"
    "|mAh|mV|kV|kcal|mmHg|hPa|min"
)
"""Units that also follow a number without a space."""
UNITS = (
    "seconds|minutes|hours|days|weeks|months|years|percent|Prozent|Sekunden|Minuten|Stunden|Tagen?|Wochen|Monaten?"
    "|Jahren?|segundos|minutos|horas|días|semanas|meses|años|secondes|minutes|heures|jours|semaines|mois|ans|[mgl]"
)
UNSPACED_UNITS = (
    "千克|毫克|公斤|克|千米|公里|毫米|厘米|米|毫升|升|千瓦|小时|小時|分钟|分鐘|キログラム|グラム|キロ"
    "|メートル|パーセント|時間|分間|[%\uff05℃]"
)
CLOCKS = r"[aApP]\.[mM]\b\.?|[aApP][mM]|Uhr"
"""Words after the time of day."""
ZONES = (
    "UTC|GMT|MES?Z|[CEW]ES?T|HAEC|BST|IST|[JK]ST|AES?T|[ECMP][SD]?T"
    r"|(?:Europe|America|Asia|Africa|Australia|Atlantic|Pacific)/\w+"
)
ERAS = "令和|平成|昭和|民国|民國"
"""Eras, before the year."""
