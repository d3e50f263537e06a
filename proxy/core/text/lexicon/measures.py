"""Wordings of units, currencies and times of day, in six languages."""

from collections.abc import Mapping

MEASURES: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "money": {
        "usd": (r"USD|(?:US[- ])?dollars?|d[oó]lar(?:es)?", r"(?:US)?\$|ドル|米ドル|美元|美金"),
        "eur": ("EUR|euros?", "€|ユーロ|欧元|歐元"),
        "gbp": (r"GBP|pounds?|Pfund|libras?|livres?", "£|ポンド|英镑|英鎊"),
        "jpy": ("JPY|yens?|Yen", "¥|円|日元|日圆"),
        "cny": ("CNY|RMB|yuan", "¥|元|人民币|人民幣"),
        "chf": ("CHF|Franken|(?:Swiss )?francs?", "瑞士法郎|スイスフラン"),
    },
    "time": {
        "millisecond": ("ms|milliseconds?|Millisekunden?|milisegundos?|millisecondes?", "ミリ秒|毫秒"),
        "second": ("s|secs?|seconds?|Sekunden?|segundos?|secondes?", "秒"),
        "minute": ("mins?|minutes?|Minuten?|minutos?", "分钟|分鐘|分間"),
        "hour": ("h|hrs?|hours?|Stunden?|Std|horas?|heures?", "時間|小时|小時"),
        "day": ("days?|Tage?n?|d[ií]as?|jours?|journées?", "日間|天"),
        "week": (
            "weeks?|Wochen?|semanas?|semaines?",
            "週間|周(?![一二三四五六日末])|个?星期(?![一二三四五六日])",
        ),
        "month": ("months?|Monate?n?|mes(?:es)?|mois", "[かヶカ]月|[个個]月"),
        "year": ("years?|Jahre?n?|años?|ans|années?", "年間|年"),
    },
    "data": {
        "kilobyte": ("[kK]i?B|[kK]ilo(?:byte|octet)s?", "千字节"),
        "megabyte": ("Mi?B|[mM]egabytes?|mégaoctets?", "兆字节"),
        "gigabyte": ("Gi?B|[gG]iga(?:byte|octet)s?", "吉字节"),
        "terabyte": ("Ti?B|[tT]erabytes?|téraoctets?", "太字节"),
    },
    "length": {
        "millimetre": ("mm|millimet(?:er|re)s?|milímetros?|millimètres?", "ミリメートル|毫米"),
        "centimetre": (
            "cm|centimet(?:er|re)s?|Zentimetern?|centímetros?|centimètres?",
            "センチ(?:メートル)?|厘米",
        ),
        "metre": ("met(?:er|re)s?|Metern?|metros?|mètres?", "メートル|米"),
        "kilometre": ("km|kilomet(?:er|re)s?|Kilometern?|kilómetros?|kilomètres?", "キロメートル|公里|千米"),
        "mile": ("miles?|Meilen?|millas?|milles?", "マイル|英里"),
        "foot": ("ft|f(?:oo|ee)t|Fuß|pies?|pieds?", "フィート|英尺"),
    },
    "mass": {
        "gram": ("g|grams?|Gramm|gramos?|grammes?", "グラム|克"),
        "kilogram": ("kg|kilos?|kilograms?|Kilogramm|kilogramos?|kilogrammes?", "キロ(?:グラム)?|公斤|千克"),
        "pound": ("lbs?|pounds?|Pfund|libras?|livres?", "ポンド|磅"),
    },
    "temperature": {
        "celsius": ("degrees Celsius|Grad Celsius|grados Celsius|degrés Celsius", "° ?C|摂氏|摄氏度"),
        "fahrenheit": ("degrees Fahrenheit|Grad Fahrenheit", "° ?F|华氏度|華氏"),
    },
}
"""Units by what they measure. A wording may be of several (`pounds`)."""
CURRENCY_BEFORE = r"(?<!\w)(?:(?:US|A|C|HK|NZ)?\$|[€£¥]|USD|EUR|GBP|JPY|CNY|RMB|CHF)"
"""A currency that stands before its number."""

MORNING = r"a\.?m|in the morning|morgens|früh|vormittags|de la (?:mañana|madrugada)|du matin"
AFTERNOON = (
    r"p\.?m|in the (?:afternoon|evening)|nachmittags|abends|de la (?:tarde|noche)|de l['\u2019]après-midi"
    "|du soir"
)
"""What follows a time before noon, and one after it."""
MORNING_BEFORE, AFTERNOON_BEFORE = "午前|上午|早上|清晨|凌晨|朝", "午後|下午|晚上|傍晚|夜|夕方"
"""What precedes such a time in Japanese and Chinese."""
HOURS = r"(?:Uhr|heures?|h|horas|o['\u2019]clock)\b|[時时](?!間|间)|[点點]"
"""What follows the hour of a time."""
