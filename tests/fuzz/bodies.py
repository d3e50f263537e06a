"""Splitting a body into its messages: spliced without a changed byte, or refused with an error of our own."""

from __future__ import annotations

from tests.fuzz.guided import fuzz, instrumented

with instrumented():
    from proxy.core.conversation.extension import take_extension
    from proxy.core.conversation.messages import read_message
    from proxy.core.dialects.chat.body import read_body
    from proxy.core.dialects.chat.messages import Content
    from proxy.errors import RequestError

BEGUN = b'{"messages":[{'
WORDS = (
    *(
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b" ",
        b"\n",
        b'"',
        b"\\",
        b"{}",
        b"[{",
        b"}]",
        b"0",
        b"-1e9",
        b"null",
    ),
    *(b'"messages":', b'"mess\\u0061ges":', b'"role":"user"', b'"content":', b'"text"', b'"tool_calls":'),
    *(b'"\\ud800"', b'"\\ud83d\\ude00"', "é".encode(), b"\xef\xbb\xbf", b"\xff", b'"unabridged":{"pin":[0]}'),
)
"""What bodies are made of: few random bytes are JSON, and its parser is not instrumented."""


def one(data: bytes) -> None:
    """Bytes as they are, and as the numbers of words that follow the beginning of a body."""
    split(data)
    words = b"".join(WORDS[byte % len(WORDS)] for byte in data)
    split(words)
    split(BEGUN + words)


def split(raw: bytes) -> None:
    try:
        body = read_body(raw, 100)
        taken, _ = take_extension(body)
    except RequestError:
        return
    assert body.raw == raw
    assert body.messages
    assert all(message in raw for message in body.messages)
    same = read_body(body.with_messages(body.messages), 100)
    assert same.messages == body.messages
    assert read_body(body.with_messages(body.messages[:1]), 100).messages == body.messages[:1]
    assert taken.messages == body.messages
    for message in body.messages:
        read_message(Content.of(message))


if __name__ == "__main__":
    fuzz(one)
