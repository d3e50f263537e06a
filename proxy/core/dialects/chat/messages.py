"""A message of Chat Completions: its role, its texts, its calls, and how it is written anew."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self, cast

from proxy.core.dialects import dialect
from proxy.core.dialects.chat.images import image_size, image_tokens, other_part_tokens
from proxy.core.formats.json import as_mapping, dumps, loads, text_or_empty, writable


class Content(dialect.Content):
    """A message's members by name."""

    __slots__ = ("_raw", "members")

    def __init__(self, members: Mapping[str, Any], raw: bytes = b"") -> None:
        self.members = members
        self._raw = raw
        """The message, where it has lone surrogates."""

    @classmethod
    def of(cls, raw: bytes) -> "Content":
        """Decode a message's bytes; one that is no object reads as an empty message."""
        text = writable(raw)
        try:
            value = loads(text)
        except ValueError:
            return cls({})
        return cls(as_mapping(value), b"" if text == raw else raw)

    @property
    def exact(self) -> Self:
        return type(self)(as_mapping(loads(self._raw))) if self._raw else self

    @property
    def role(self) -> str:
        return text_or_empty(self.members.get("role"))

    @property
    def name(self) -> str:
        return text_or_empty(self.members.get("name"))

    @property
    def answers(self) -> str | None:
        """The id of the call that this message is the result of (a legacy function result: its name)."""
        if self.role == "function":
            return "function:" + self.name
        found = self.members.get("tool_call_id")
        return found if isinstance(found, str) else None

    @property
    def refusal(self) -> str:
        return text_or_empty(self.members.get("refusal"))

    def parts(self) -> Iterator[Mapping[str, Any]]:
        """Content parts; a string is one text part."""
        content = self.members.get("content")
        if isinstance(content, str):
            yield _text_part(content)
        elif isinstance(content, list):
            yield from (as_mapping(part) for part in cast("list[object]", content))

    def texts(self) -> list[str]:
        content = self.members.get("content")
        if isinstance(content, str):
            return [content]
        return [part["text"] for part in self.parts() if isinstance(part.get("text"), str)]

    def tool_calls(self) -> Iterator[dialect.Call]:
        """Each tool call; a legacy function call has its name for an id."""
        calls = self.members.get("tool_calls")
        if isinstance(calls, list):
            for each in cast("list[object]", calls):
                call = as_mapping(each)
                body = as_mapping(call.get("function") or call.get("custom"))
                arguments = body.get("arguments", body.get("input"))
                yield (
                    text_or_empty(call.get("id")),
                    text_or_empty(body.get("name")),
                    text_or_empty(arguments),
                )
        legacy = as_mapping(self.members.get("function_call"))
        if legacy:
            name = text_or_empty(legacy.get("name"))
            yield "function:" + name, name, text_or_empty(legacy.get("arguments"))

    def shown_tokens(self, model: str) -> int:
        total = 0
        for part in self.parts():
            image = part.get("image_url")
            if part.get("type") == "image_url" or image is not None:
                detail = text_or_empty(as_mapping(image).get("detail")) or None
                total += image_tokens(_url_of(part), detail, model)
            elif "text" not in part:
                total += other_part_tokens(part)
        return total

    def with_texts(self, texts: Sequence[str]) -> Self:
        content, left = self.exact.members.get("content"), iter(texts)
        if not isinstance(content, list):
            return self._with_content(next(left, content))
        parts = cast("list[object]", content)
        are_texts = [isinstance(as_mapping(part).get("text"), str) for part in parts]
        return self._with_content(
            [
                {**as_mapping(part), "text": next(left)} if is_text else part
                for part, is_text in zip(parts, are_texts, strict=True)
            ]
        )

    def with_text(self, text: str) -> Self:
        is_list = isinstance(self.members.get("content"), list)
        return self._with_content([_text_part(text)] if is_list else text)

    def without_pictures(self, line: Callable[[dialect.Size | None], str]) -> Self | None:
        content = self.exact.members.get("content")
        listed = cast("list[object]", content) if isinstance(content, list) else []
        parts = [as_mapping(each) for each in listed]
        kinds = [part.get("type") for part in parts]
        if "image_url" not in kinds or not all(kind in ("text", "image_url") for kind in kinds):
            return None
        return self._with_content(
            [
                _text_part(line(image_size(_url_of(part)))) if kind == "image_url" else part
                for part, kind in zip(parts, kinds, strict=True)
            ]
        )

    def _with_content(self, content: object) -> Self:
        """With other content, as it was written otherwise."""
        return type(self)({**self.exact.members, "content": content})

    def written(self) -> bytes:
        return dumps(self.members)


def _text_part(text: str) -> Mapping[str, Any]:
    return {"type": "text", "text": text}


def _url_of(part: Mapping[str, Any]) -> str:
    """Where the image of a part is; a bare URL in the place of an object is one too."""
    image = part.get("image_url")
    return text_or_empty(as_mapping(image).get("url")) or text_or_empty(image)
