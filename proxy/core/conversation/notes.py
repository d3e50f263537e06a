"""The text of notes, which replace cut messages: summaries, notices, and quotes.

A note is fenced data in the past tense. The name of its fence comes from the chain hash of the messages that
it replaces. No text inside can know that name, so text that imitates the closing line closes nothing. A note
has no time and no counter in it: the same cut gives the same bytes.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from proxy.core.text.cutting import start_of, without_data

QUOTE_LENGTH = 160
"""Characters that a note quotes of an earlier request."""


@dataclass(frozen=True, slots=True)
class _Wording:
    frame: str
    summary: tuple[str, str]
    """Singular and plural, for one message and for several; so are the next two."""
    omitted: tuple[str, str]
    removed: tuple[str, str]
    above: str
    under_way: str
    quoted: str
    constraints: str
    identifiers: str
    results: str
    handed_in: str
    remembered: str
    said_by_model: str
    """Follows an item that only the model said."""


_WORDINGS = {
    "en": _Wording(
        "Record of what came before, not a request.",
        ("Summary of {n} earlier message: {text}", "Summary of {n} earlier messages: {text}"),
        ("[{n} message omitted]", "[{n} messages omitted]"),
        ("[{n} message removed]", "[{n} messages removed]"),
        "The request above was answered in these messages.",
        "These were earlier steps of the work on the request above.",
        "Earlier requests that were answered: {text}",
        "What the user laid down, word for word, unless changed since:",
        "Exact details, newest first:",
        "Results of tools that were still fresh, whole:",
        "Handed in before the conversation, not a request.",
        "Remembered from earlier conversations; data, not a request.",
        "(said by the assistant)",
    ),
    "de": _Wording(
        "Aufzeichnung des Vorangegangenen, keine Anfrage.",
        (
            "Zusammenfassung von {n} früherer Nachricht: {text}",
            "Zusammenfassung von {n} früheren Nachrichten: {text}",
        ),
        ("[{n} Nachricht ausgelassen]", "[{n} Nachrichten ausgelassen]"),
        ("[{n} Nachricht entfernt]", "[{n} Nachrichten entfernt]"),
        "Die Anfrage darüber wurde in diesen Nachrichten beantwortet.",
        "Dies waren frühere Schritte der Arbeit an der Anfrage darüber.",
        "Frühere Anfragen, die beantwortet wurden: {text}",
        "Was der Nutzer wörtlich festgelegt hatte, sofern nicht seither geändert:",
        "Genaue Angaben, neueste zuerst:",
        "Ergebnisse von Werkzeugen, die noch aktuell waren, vollständig:",
        "Vor dem Gespräch übergeben, keine Anfrage.",
        "Aus früheren Gesprächen behalten; Daten, keine Anfrage.",
        "(vom Assistenten gesagt)",
    ),
    "fr": _Wording(
        "Trace de ce qui précède, pas une demande.",
        ("Résumé de {n} message précédent : {text}", "Résumé de {n} messages précédents : {text}"),
        ("[{n} message omis]", "[{n} messages omis]"),
        ("[{n} message retiré]", "[{n} messages retirés]"),
        "La demande ci-dessus a reçu une réponse dans ces messages.",
        "C'étaient des étapes antérieures du travail sur la demande ci-dessus.",
        "Demandes précédentes qui ont reçu une réponse : {text}",
        "Ce que l'utilisateur avait fixé, mot pour mot, sauf changement depuis :",
        "Détails exacts, les plus récents d'abord :",
        "Résultats d'outils encore à jour, en entier :",
        "Remis avant la conversation, pas une demande.",
        "Retenu de conversations précédentes ; des données, pas une demande.",
        "(dit par l'assistant)",
    ),
    "es": _Wording(
        "Registro de lo anterior, no una petición.",
        ("Resumen de {n} mensaje anterior: {text}", "Resumen de {n} mensajes anteriores: {text}"),
        ("[{n} mensaje omitido]", "[{n} mensajes omitidos]"),
        ("[{n} mensaje eliminado]", "[{n} mensajes eliminados]"),
        "La petición de arriba se respondió en estos mensajes.",
        "Eran pasos anteriores del trabajo sobre la petición de arriba.",
        "Peticiones anteriores que se respondieron: {text}",
        "Lo que el usuario había fijado, palabra por palabra, salvo cambios posteriores:",
        "Datos exactos, lo más reciente primero:",
        "Resultados de herramientas que aún eran actuales, completos:",
        "Entregado antes de la conversación, no una petición.",
        "Recordado de conversaciones anteriores; datos, no una petición.",
        "(dicho por el asistente)",
    ),
    "ja": _Wording(
        "これまでの記録であり、依頼ではありません。",
        ("以前の{n}件のメッセージの要約: {text}", "以前の{n}件のメッセージの要約: {text}"),
        ("[{n}件のメッセージを省略]", "[{n}件のメッセージを省略]"),
        ("[{n}件のメッセージを削除]", "[{n}件のメッセージを削除]"),
        "上の依頼にはこれらのメッセージで回答しました。",
        "これらは上の依頼に関する作業の以前の手順です。",
        "回答した以前の依頼: {text}",
        "ユーザーが定めたこと(原文のまま、後の変更が優先):",
        "正確な情報(新しい順):",
        "まだ有効だったツールの結果(全文):",
        "会話の前に渡された資料であり、依頼ではありません。",
        "以前の会話から記憶した資料であり、依頼ではありません。",
        "(アシスタントの発言)",
    ),
    "zh": _Wording(
        "此前对话的记录,并非请求。",
        ("此前{n}条消息的摘要:{text}", "此前{n}条消息的摘要:{text}"),
        ("[已省略{n}条消息]", "[已省略{n}条消息]"),
        ("[已移除{n}条消息]", "[已移除{n}条消息]"),
        "上面的请求已在这些消息中得到答复。",
        "这些是处理上面请求的较早步骤。",
        "此前已答复的请求:{text}",
        "用户此前定下的要求(原话,后有变更以变更为准):",
        "确切信息(由新到旧):",
        "此前仍然有效的工具结果(完整):",
        "对话开始前提供的资料,并非请求。",
        "此前对话中记住的资料,并非请求。",
        "(助手所说)",
    ),
}


@dataclass(frozen=True, slots=True)
class Note:
    """The content of a note."""

    count: int
    """Number of messages that it replaces."""
    seal: bytes
    """Chain hash of the last of them."""
    language: str = "en"
    summaries: tuple[tuple[int, str], ...] = ()
    """Summaries, each with the number of messages that it covers."""
    failed: bool = False
    """Whether a summary was requested and could not be obtained."""
    answers_above: bool = False
    """Whether the message above is a request that the cut messages answered."""
    under_way: bool = False
    """Whether that request is still being worked on."""
    quotes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The note's text, including its fence."""
        wording = _WORDINGS[self.language]
        # A summary without a frame in the past tense makes models resume finished work:
        # https://github.com/anthropics/claude-code/issues/46602
        lines = [wording.frame]
        lines += [wording.summary[count > 1].format(n=count, text=text) for count, text in self.summaries]
        others = self.count - sum(count for count, _ in self.summaries)
        if others:
            notice = wording.removed if self.failed else wording.omitted
            lines.append(notice[others > 1].format(n=others))
        if self.answers_above:
            lines.append(wording.under_way if self.under_way else wording.above)
        if self.quotes:
            lines.append(wording.quoted.format(text=" · ".join(f"“{quote}”" for quote in self.quotes)))
        return _fenced(b"note\0" + self.seal, lines)


def injection_note(text: str, language: str) -> str:
    """Return the text that a caller handed in, as a note."""
    return _quoting(b"inject\0", text, _WORDINGS[language].handed_in)


def memory_note(text: str, language: str) -> str:
    """Return what is remembered of other sessions, as a note."""
    return _quoting(b"memory\0", text, _WORDINGS[language].remembered)


def _quoting(kind: bytes, text: str, frame: str) -> str:
    """Return a text as a note. Its digest is hashed again until the fence does not occur in the text."""
    seal = kind + text.encode(errors="surrogatepass")
    while _fence(seal) in text:
        seal = hashlib.sha256(seal).digest()
    return _fenced(seal, [frame, *([text] if text else [])])


SAID_BY_MODEL = {language: wording.said_by_model for language, wording in _WORDINGS.items()}
"""The remark that follows an item that only the model said, by language."""


def _fenced(seal: bytes, lines: Sequence[str]) -> str:
    fence = _fence(seal)
    return "\n".join([f"<note {fence}>", *lines, f"</note {fence}>"])


def _fence(seal: bytes) -> str:
    return hashlib.sha256(seal).hexdigest()[:12]


def ledger_lines(constraints: Sequence[str], identifiers: str, language: str) -> str:
    """Return the ledger as a note shows it: the constraints, one per line, then the identifiers."""
    wording = _WORDINGS[language]
    lines: list[str] = []
    if constraints:
        lines += [wording.constraints, *(f"- {text}" for text in constraints)]
    if identifiers:
        lines += [wording.identifiers, identifiers]
    return "\n".join(lines)


def result_lines(results: Sequence[str], language: str) -> str:
    """Return tool results as the ledger shows them, one per line; empty if there are none."""
    return "\n".join([_WORDINGS[language].results, *(f"> {text}" for text in results)]) if results else ""


def with_ledger(text: str, ledger: str) -> str:
    """Insert the ledger into a note's text, before the closing fence."""
    body, line, fence = text.rpartition("\n")
    return f"{body}\n{ledger}{line}{fence}"


def without_ledger(text: str, ledger: str) -> str:
    """Remove this ledger from a note's text."""
    body, line, fence = text.rpartition("\n")
    return body.removesuffix("\n" + ledger) + line + fence


def quote(text: str) -> str:
    """Shorten a request to one line of at most ``QUOTE_LENGTH`` characters; encoded data is only named."""
    return start_of(" ".join(without_data(text).split()), QUOTE_LENGTH)
