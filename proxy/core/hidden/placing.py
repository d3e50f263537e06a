"""What stands upstream for an answer in which calls were hidden, in its place among a chain's messages."""

from collections.abc import Mapping, Sequence


def placed(
    raws: Sequence[bytes], hashes: Sequence[bytes], said: Mapping[bytes, Sequence[bytes]]
) -> Sequence[bytes]:
    """The messages with those that are ``said`` in the place of one; they are one slice, joined by commas.

    So positions stay those of the chain, and an array joined from the slices holds all of the messages.
    """
    if not said:
        return raws
    return [b",".join(said[each]) if each in said else raw for raw, each in zip(raws, hashes, strict=True)]


def parted(slices: Sequence[bytes], said: Mapping[bytes, Sequence[bytes]]) -> list[bytes]:
    """The single messages of such slices."""
    several = {b",".join(messages): messages for messages in said.values()}
    return [raw for each in slices for raw in several.get(each, (each,))]
