"""Branches of the messages that are kept of a session."""

from __future__ import annotations

from proxy.core.conversation.records import path_to
from tests.support.stores import chain, nodes

MAIN = {node.hash: node for node in nodes("u1", "a1", "u2", "a2")}
SIDE = {node.hash: node for node in nodes("u1", "a1", "edited", "a3")}


def test_a_branch_goes_from_the_root_to_its_end_and_takes_no_other_along() -> None:
    way = path_to(MAIN | SIDE, chain("u1", "a1", "edited", "a3")[-1])
    assert [node.hash for node in way] == chain("u1", "a1", "edited", "a3")


def test_it_may_begin_behind_another_branch() -> None:
    way = path_to(MAIN | SIDE, chain("u1", "a1", "edited", "a3")[-1], after=MAIN.keys())
    assert [node.hash for node in way] == chain("u1", "a1", "edited", "a3")[2:]


def test_where_messages_are_missing_it_does_not_begin_at_the_first() -> None:
    torn = {chain_hash: node for chain_hash, node in MAIN.items() if chain_hash != chain("u1", "a1")[-1]}
    way = path_to(torn, chain("u1", "a1", "u2", "a2")[-1])
    assert [node.sequence for node in way] == [2, 3]


def test_of_a_message_that_is_not_there_there_is_none() -> None:
    assert path_to(MAIN, b"elsewhere") == []
