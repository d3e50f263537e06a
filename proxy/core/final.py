"""The end of a stream held back: what says that an answer is over waits until that is true of its record."""

import re

_FINAL = re.compile(rb"[\r\n]data: ?\[DONE\]")
_SPELLINGS = (b"data: [DONE]", b"data:[DONE]")


class FinalEvent:
    """Lets a stream's bytes pass as they come, but for ``data: [DONE]`` and what follows it."""

    def __init__(self) -> None:
        self._before: bytes = b"\n"
        """The last byte that has passed."""
        self._doubtful: bytes = b""
        """The beginning of a line that may become the final one."""
        self._held: bytes = b""

    @property
    def is_here(self) -> bool:
        """Whether the final event has begun."""
        return bool(self._held)

    def feed(self, chunk: bytes) -> bytes:
        """The bytes that may go on to the client, now that this chunk is here."""
        if self._held:
            self._held += chunk
            return b""
        text = self._before + self._doubtful + chunk
        found = _FINAL.search(text)
        held_from = found.start() + 1 if found else len(text) - _undecided(text)
        if found:
            self._held, self._doubtful = text[held_from:], b""
        else:
            self._doubtful = text[held_from:]
        self._before = text[held_from - 1 : held_from]
        return text[1:held_from]

    def rest(self) -> bytes:
        """What is held."""
        held, self._held, self._doubtful = self._held + self._doubtful, b"", b""
        return held


def _undecided(text: bytes) -> int:
    """How many bytes at the end may be the beginning of the final line."""
    line_end = max(text.rfind(b"\n"), text.rfind(b"\r"))
    line = text[line_end + 1 :]
    return len(line) if line_end >= 0 and any(each.startswith(line) for each in _SPELLINGS) else 0
