"""Units of any history, however odd."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from proxy.core.conversation.messages import Message
from proxy.core.conversation.units import Unit, open_from, request_points, units_of
from proxy.core.dialects.chat.messages import Content
from proxy.core.dialects.registry import CHAT
from proxy.core.persistent import Incremental, Sizes
from proxy.core.planning.chain import Chain, ChainCache
from tests.support.conversations import Sent, assistant, calling, chain_from, result, user

_ids = st.sampled_from(["a", "b", "c"])


def _plain(role: str) -> Message:
    return Message(role, b"")


def _calling(ids: list[str]) -> Message:
    return Message("assistant", b"", calls=tuple(ids))


def _answering(role: str, calls: list[str]) -> Message:
    return Message(role, b"", result_of=tuple(calls))


_messages = st.one_of(
    st.builds(_plain, st.sampled_from(["user", "assistant", "system", "odd"])),
    st.builds(_calling, st.lists(_ids, max_size=3)),
    st.builds(_answering, st.sampled_from(["tool", "function"]), st.lists(_ids, max_size=1)),
    st.builds(_answering, st.sampled_from(["tool", "user"]), st.lists(_ids, min_size=1, max_size=3)),
)
histories = st.lists(_messages, max_size=25)


def _chain(
    messages: list[Message], raws: list[bytes] | None = None, known: ChainCache | None = None
) -> Chain:
    own = [b"%d" % place for place in range(len(messages))] if raws is None else raws
    return Chain(messages, own, Sizes.of(()), (), CHAT, known or ChainCache())


@given(histories)
def test_units_cover_the_chain_once_and_in_order(messages: list[Message]):
    covered = [place for unit in units_of(messages) for place in range(unit.start, unit.end)]
    assert covered == list(range(len(messages)))


@given(histories)
def test_a_result_is_in_the_unit_of_the_nearest_caller_before_it(messages: list[Message]):
    home = {place: unit for unit in units_of(messages) for place in range(unit.start, unit.end)}
    for place, message in enumerate(messages):
        for call in message.result_of:
            callers = [before for before in range(place) if call in messages[before].calls]
            if callers:
                assert home[place] == home[callers[-1]]


@given(histories)
def test_no_unit_but_the_first_begins_with_a_result(messages: list[Message]):
    for unit in units_of(messages)[1:]:
        assert not messages[unit.start].is_result


@given(histories)
def test_an_unanswered_call_stands_in_one_unit_with_all_up_to_what_asks_or_answers(messages: list[Message]):
    home = {place: unit for unit in units_of(messages) for place in range(unit.start, unit.end)}
    answered: set[tuple[int, str]] = set()
    callers: dict[str, int] = {}
    for place, message in enumerate(messages):
        callers |= dict.fromkeys(message.calls, place)
        answered.update((callers[call], call) for call in message.result_of if call in callers)
    for place, message in enumerate(messages):
        if any((place, call) not in answered for call in message.calls):
            following = place + 1
            while following < len(messages) and messages[following].role not in ("user", "assistant"):
                assert home[following] == home[place]
                following += 1


@given(histories)
def test_the_open_unit_is_a_unit_and_nothing_stands_after_it_but_a_prefill(messages: list[Message]):
    units = units_of(messages)
    if units:
        assert len(units) - open_from(messages, units) in (1, 2)


@given(histories)
def test_what_is_settled_ends_before_all_that_is_still_to_be_answered(messages: list[Message]):
    asked = _chain(messages)
    assert asked.editable_length <= asked.open_from
    assert asked.editable_length in (0, asked.last_user)


@given(histories)
def test_requests_only_grow_and_end_with_the_whole(messages: list[Message]):
    points = request_points(messages)
    assert points == sorted(set(points))
    assert points[-1] == len(messages)


# --- what is known of a beginning


_said = st.one_of(
    st.builds(user, st.sampled_from(["so", "on"])),
    st.builds(assistant, st.just("well")),
    st.builds(calling, _ids),
    st.builds(calling, _ids, _ids),
    st.builds(result, _ids, st.sampled_from(["wind: 9", "wind: 7"])),
)
_lengths = st.lists(st.integers(0, 15), min_size=2, max_size=6)
_U, _A, _CALLS, _ANSWERS = _plain("user"), _plain("assistant"), _calling(["a"]), _answering("tool", ["a"])
_few = st.sampled_from([_U, _A, _CALLS, _ANSWERS])


@given(
    st.lists(_few, max_size=8),
    st.lists(_few, max_size=4),
    st.integers(0, 6),
    st.lists(st.tuples(st.booleans(), st.integers(1, 9)), min_size=2, max_size=6),
)
@example([_CALLS, _U, _ANSWERS], [], 0, [(False, 2), (False, 3)])
@example([_U, _CALLS, _U], [_A, _U], 2, [(False, 3), (True, 4)])
def test_units_go_on_from_those_of_whichever_requests_came_before(
    line: list[Message], branch: list[Message], fork: int, requests: list[tuple[bool, int]]
):
    known = ChainCache(Incremental[Unit]())
    for is_branch, length in requests:
        messages = ([*line[:fork], *branch] if is_branch else line)[:length]
        raws = [b"%d %d" % (place, is_branch and place >= fork) for place in range(len(messages))]
        assert _chain(messages, raws, known).units == units_of(messages)


@given(st.lists(_said, max_size=15))
def test_the_beginning_of_a_chain_has_the_units_that_it_had_when_that_was_all(said: list[Sent]):
    whole = chain_from(said)
    for length in range(len(said) + 1):
        assert whole.prefix(length).units == units_of(whole.messages[:length])


@given(st.lists(_said, max_size=15), _lengths)
def test_what_each_message_is_about_does_not_depend_on_the_requests_before(
    said: list[Sent], lengths: list[int]
):
    known: Chain | None = None
    for length in lengths:
        alone = chain_from(said[:length])
        known = Chain(
            alone.messages,
            alone.raws,
            alone.tokens,
            alone.hashes,
            alone.dialect,
            known.cache if known is not None else ChainCache(),
        )
        contents = [Content.of(raw) for raw in alone.raws]
        assert known.addresses(contents.__getitem__) == alone.addresses(contents.__getitem__)
