"""Smaller scripts: what is left of one without a client, without a fault, or without a step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.histories.scripts import Script


def smaller(script: Script) -> Iterator[Script]:
    """Scripts with one thing less, the largest things first."""
    for client in script.clients:
        if len(script.clients) > 1:
            yield replace(script, clients=tuple(each for each in script.clients if each is not client))
    for fault in script.faults:
        yield replace(script, faults=tuple(each for each in script.faults if each is not fault))
    for place, client in enumerate(script.clients):
        for number in range(len(client.steps)):
            fewer = replace(client, steps=(*client.steps[:number], *client.steps[number + 1 :]))
            if fewer.steps:
                yield replace(script, clients=(*script.clients[:place], fewer, *script.clients[place + 1 :]))
