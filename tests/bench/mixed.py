"""A long working conversation: talk in six languages, calls, code, logs and lists.

Messages have some 100 to 300 tokens each. Everything is drawn from a seed, so each run holds the same one.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

Sent = dict[str, Any]

_SAID = {
    "en": (
        "The {noun} in {path} answers {status} since {day}, although {name} restarted it with {env}.",
        "Please look at the {noun} again and compare it with ticket {ticket} before anything is deployed.",
        "Never delete {path} while the {noun} is running.",
        "We paid {amount} for the {noun} in March, and {name} wants to know why it is so slow.",
        "The {noun} was moved from {host} to another machine, and nobody has told the {noun} about it.",
        "As far as I can see, both versions do the same, but {version} takes twice the memory.",
    ),
    "de": (
        "Der Dienst {noun} meldet seit {day} den Status {status}, obwohl {name} ihn neu gestartet hat.",
        "Bitte verwende für {path} immer die Version {version} und keine andere.",
        "Wir haben für {ticket} bisher {amount} ausgegeben, und das Ergebnis ist noch nicht zu gebrauchen.",
        "Auf {host} läuft alles wie erwartet, nur die Auswertung von {noun} dauert zu lange.",
    ),
    "fr": (
        "Le service {noun} renvoie {status} depuis {day}, et {name} ne sait pas pourquoi.",
        "Il ne faut jamais modifier {path} sans prévenir {name} au préalable.",
        "La facture de {amount} concerne le ticket {ticket}, pas la version {version}.",
        "Sur {host}, tout fonctionne comme prévu, mais la sauvegarde prend deux heures de trop.",
    ),
    "es": (
        "El servicio {noun} devuelve {status} desde {day}, aunque {name} lo ha reiniciado dos veces.",
        "Usa siempre la versión {version} para {path}, por favor.",
        "Hemos pagado {amount} por el ticket {ticket} y todavía no funciona.",
        "En {host} todo va bien, salvo que el informe de {noun} tarda demasiado.",
    ),
    "zh": (
        "服务 {noun} 从 {day} 起返回 {status},{name} 已经重启过两次。",
        "请不要删除 {path},那里有上个月的数据。",
        "工单 {ticket} 的费用是 {amount},版本是 {version}。",
        "在 {host} 上一切正常,只是报表生成得太慢。",
    ),
    "ja": (
        "{day} から {noun} が {status} を返しています。{name} さんが再起動しました。",
        "{path} は必ずバージョン {version} を使ってください。",
        "チケット {ticket} の費用は {amount} でした。",
        "{host} では問題ありませんが、集計に時間がかかりすぎます。",
    ),
}
_LANGUAGES = tuple(_SAID)
_NOUNS = (
    "billing ledger,search index,mail gateway,image resizer,login page,price importer,night job,"
    "report builder,session cache,order queue,address book,stock counter"
).split(",")
_NAMES = "Maria Keller,Tom Baker,Ana Ruiz,Jean Moreau,Yuki Sato,Li Wei,Olga Brandt,Sam Carter".split(",")
_FOLDERS = "src tests deploy scripts docs config migrations handlers".split()
_FILES = "orders billing mailer index session importer report queue stock address".split()
_LEVELS = "INFO INFO INFO INFO WARN DEBUG DEBUG ERROR".split()
_DID = (
    "accepted connection from {ip}",
    "request {id} took {ms} ms",
    "retrying {path} ({n} of 5)",
    "wrote {n} rows to {noun}",
    "timeout after {ms} ms while reading {path}",
    "released lock {id}",
)
_CODE = (
    "def {verb}_{thing}(self, {thing}_id: int, limit: int = {n}) -> list[Row]:",
    "    rows = self.store.select('{thing}', where={{'id': {thing}_id, 'kind': '{verb}'}})",
    "    if not rows:",
    "        raise LookupError(f'no {thing} {{{thing}_id}}')",
    "    for row in rows[:limit]:",
    "        self.log.debug('%s %s', row.id, row.total)",
    "        row.total = round(row.total * {n} / 100, 2)",
    "    return sorted(rows, key=lambda row: row.{thing}_date)",
    "",
)
_VERBS = "load save check merge send count find close".split()


def mixed(number: int) -> list[Sent]:
    """A request, three calls with their results, and an answer."""
    draw = Random(number)
    language = _LANGUAGES[number % len(_LANGUAGES)] if number % 3 else "en"
    messages: list[Sent] = [{"role": "user", "content": _talk(draw, language, 4)}]
    for step, found in enumerate(draw.sample((_log, _listing, _file, _record), 3)):
        name, arguments, result = found(draw)
        call: Sent = {"id": f"call_{number}_{step}", "type": "function"}
        call["function"] = {"name": name, "arguments": json.dumps(arguments)}
        thought = _talk(draw, "en", 2)
        messages.append({"role": "assistant", "content": thought, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
    messages.append(
        {"role": "assistant", "content": f"{_talk(draw, language, 3)}\n\n```\n{_code(draw)}\n```"}
    )
    return messages


def _talk(draw: Random, language: str, sentences: int) -> str:
    chosen = [draw.choice(_SAID[language]).format(**_things(draw)) for _ in range(sentences)]
    return ("" if language in {"zh", "ja"} else " ").join(chosen)


def _things(draw: Random) -> dict[str, object]:
    return {
        "noun": draw.choice(_NOUNS),
        "name": draw.choice(_NAMES),
        "path": _path(draw),
        "status": draw.choice((200, 301, 404, 409, 500, 502, 503)),
        "day": f"2025-{draw.randint(1, 12):02}-{draw.randint(1, 28):02}",
        "env": f"{draw.choice(_FILES).upper()}_LIMIT={draw.randint(1, 9_999)}",
        "ticket": f"{draw.choice(('OPS', 'WEB', 'PAY'))}-{draw.randint(100, 99_999)}",
        "amount": f"${draw.randint(10, 99_999):,}.{draw.randint(0, 99):02}",
        "version": f"{draw.randint(0, 9)}.{draw.randint(0, 40)}.{draw.randint(0, 20)}",
        "host": f"{draw.choice(_FILES)}-{draw.randint(1, 40)}.example.net",
        "ip": f"10.{draw.randint(0, 255)}.{draw.randint(0, 255)}.{draw.randint(1, 254)}",
        "id": f"{draw.getrandbits(48):012x}",
        "ms": draw.randint(1, 30_000),
        "n": draw.randint(1, 500),
    }


def _path(draw: Random) -> str:
    return f"{draw.choice(_FOLDERS)}/{draw.choice(_FILES)}/{draw.choice(_FILES)}_{draw.randint(1, 60)}.py"


def _code(draw: Random) -> str:
    verb, thing, n = draw.choice(_VERBS), draw.choice(_FILES), draw.randint(2, 90)
    return "\n".join(line.format(verb=verb, thing=thing, n=n) for line in _CODE)


def _log(draw: Random) -> tuple[str, Sent, str]:
    lines = [
        f"2025-06-{draw.randint(1, 30):02}T{draw.randint(0, 23):02}:{draw.randint(0, 59):02}:07Z "
        f"{draw.choice(_LEVELS)} [{draw.choice(_FILES)}] " + draw.choice(_DID).format(**_things(draw))
        for _ in range(draw.randint(4, 9))
    ]
    return "read_log", {"host": f"{draw.choice(_FILES)}-1", "lines": len(lines)}, "\n".join(lines)


def _listing(draw: Random) -> tuple[str, Sent, str]:
    lines = [
        f"-rw-r--r-- 1 build build {draw.randint(90, 90_000):>7} Jun {draw.randint(1, 30):>2} {_path(draw)}"
        for _ in range(draw.randint(4, 10))
    ]
    return "run", {"command": f"ls -l {draw.choice(_FOLDERS)}"}, "\n".join(lines)


def _file(draw: Random) -> tuple[str, Sent, str]:
    lines = "\n".join(_code(draw) for _ in range(draw.randint(1, 2))).splitlines()
    shown = "\n".join(f"{number:>5}\t{line}" for number, line in enumerate(lines, draw.randint(1, 400)))
    return "read_file", {"path": _path(draw), "limit": len(lines)}, shown


def _record(draw: Random) -> tuple[str, Sent, str]:
    rows = [
        {
            "id": draw.getrandbits(40),
            "customer": draw.choice(_NAMES),
            "total": draw.randint(100, 999_999) / 100,
            "paid": draw.random() < 0.5,
            "updated": f"2025-{draw.randint(1, 12):02}-{draw.randint(1, 28):02}",
        }
        for _ in range(draw.randint(2, 5))
    ]
    return "query", {"table": draw.choice(_FILES), "limit": len(rows)}, json.dumps({"rows": rows})
