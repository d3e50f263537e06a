"""Several rounds of an upstream's answers edited into one answer, as the engine does: streamed and whole."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from proxy.core.dialects.answers import Answer, AnswerEditor, HiddenCallRules, ToolCall
from proxy.core.dialects.chat.answer_editor import CompletionEditor
from proxy.core.dialects.chat.completion import StreamCollector, read_completion
from proxy.core.dialects.chat.stream_editor import StreamEditor

Answers = Callable[[ToolCall], bool]
"""Whether the proxy answers a call that it may answer."""

RULES = HiddenCallRules(
    may_answer=lambda tool: tool.startswith("get"), is_own_tool=lambda tool: tool == "recall"
)
ROUNDS = 2


def cut(stream: bytes, points: Sequence[int]) -> list[bytes]:
    marks = [0, *sorted(point % (len(stream) + 1) for point in points), len(stream)]
    return [stream[start:end] for start, end in itertools.pairwise(marks)]


def always(call: ToolCall) -> bool:
    return True


def never(call: ToolCall) -> bool:
    return False


@dataclass
class Told:
    """What the client got, and the upstream's message in each round."""

    passed: list[bytes]
    """The bytes that passed with each chunk, then those at the end."""
    rounds: list[dict[str, Any]]
    hidden: list[ToolCall]
    visible: bytes

    @property
    def whole(self) -> bytes:
        return b"".join(self.passed)

    @property
    def answer(self) -> Answer:
        return collected(self.whole)


def streamed(rounds: Sequence[Sequence[bytes]], answers: Answers, rules: HiddenCallRules = RULES) -> Told:
    """Edit rounds, given as chunks of bytes, into one stream."""
    editor, told, answered = StreamEditor(rules), Told([], [], [], b""), list[ToolCall]()
    following: Iterator[bytes] = iter(())
    for number, chunks in enumerate(rounds, 1):
        following = iter(chunks)
        for chunk in following:
            told.passed.append(editor.feed(chunk))
            if editor.is_over:
                break
        else:
            told.passed.append(editor.rest())
        answered = [call for call in editor.answerable_calls() if answers(call)]
        told.hidden += answered
        told.rounds.append(json.loads(editor.message()))
        if _is_last(editor, answered, number, len(rounds)):
            break
        editor.go_on(may_ask=number < ROUNDS)
    editor.settle(answered)
    told.passed.append(editor.end())
    told.passed += [*map(editor.feed, following), editor.rest()]
    told.visible = editor.visible
    return told


def in_one_piece(
    rounds: Sequence[bytes], answers: Answers, rules: HiddenCallRules = RULES
) -> tuple[bytes, bytes]:
    """Edit rounds, given as bodies, into one; return also the message that the client gets."""
    editor, answered = CompletionEditor(rules), list[ToolCall]()
    for number, body in enumerate(rounds, 1):
        editor.feed(body)
        answered = [call for call in editor.answerable_calls() if answers(call)]
        if _is_last(editor, answered, number, len(rounds)):
            break
        editor.go_on(may_ask=number < ROUNDS)
    editor.settle(answered)
    return editor.end(), editor.visible


def _is_last(editor: AnswerEditor, answered: list[ToolCall], number: int, most: int) -> bool:
    is_asking = len(editor.answerable_calls()) > len(answered)
    return not answered or is_asking or bool(editor.client_calls()) or number == most


def collected(stream: bytes) -> Answer:
    collector = StreamCollector()
    collector.feed(stream)
    return collector.answer()


def read(body: bytes) -> Answer:
    return read_completion(body)
