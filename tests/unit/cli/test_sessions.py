"""What the session verbs show."""

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from proxy.cli.sessions import _listing, _tools, short_ids  # pyright: ignore[reportPrivateUsage]

TENANT = "3f" * 16
IDS = st.lists(
    st.tuples(
        st.just(TENANT),
        st.sampled_from(["aaaaaaaaaaaaaaaaaaaaaaaa", "aaaaaaaaaaaaaaaaaaaaaaab", "bbbbbbbbbbbbbbbbbbbbbbbb"]),
        st.text("0123456789abcdef", min_size=16, max_size=16) | st.just("named"),
    ).map(".".join),
    unique=True,
)


@given(IDS)
def test_a_short_id_is_as_much_as_tells_a_session_from_the_others_listed(ids: list[str]) -> None:
    shown = short_ids(ids)
    assert shown.keys() == set(ids)
    for each, short in shown.items():
        assert len(short) >= 8
        assert [other for other in ids if other.removeprefix(f"{TENANT}.").startswith(short)] == [each]


def test_a_short_id_has_eight_characters_where_these_do() -> None:
    ids = [f"{TENANT}.0123456789abcdef01234567.named", f"{TENANT}.0123456fffffffffffffffff.named"]
    assert list(short_ids(ids).values()) == ["01234567", "0123456f"]


def session(tag: str, name: str) -> dict[str, object]:
    numbers = {"tokens": 112_000, "budget": 112_000, "full_tokens": 250_000, "turns": 1000, "prune_count": 12}
    told = {"id": f"{TENANT}.{tag}.named", "name": name, "model": "gpt-4o-mini", "stage": "emergency"}
    return {**told, **numbers, "updated": "2026-11-22T03:47:42.000Z"}


def test_the_ids_and_numbers_of_a_listing_are_whole_in_a_narrow_terminal() -> None:
    tag, other = "0123456789abcdef01234567", "f" * 24
    console = Console(width=80, record=True, force_terminal=False)
    for each in _listing([session(tag, "a trip to the harbour"), session(other, f"ub-{other}-x")]):
        console.print(each)
    lines = console.export_text().splitlines()
    assert [line.split()[0] for line in lines if line[:1].strip()] == ["id", "01234567", "ffffffff"]
    assert "112,000  112,000  250,000  1,000      12" in lines[1]
    assert "ub-" not in "".join(lines)


def test_fresh_results_are_shown_a_line_each_without_what_a_terminal_would_obey() -> None:
    result = {
        "tool_name": "get_user",
        "parameters": {"id": 5},
        "result": "Mia\x1b[2J\nand more",
        "result_bytes": 1_234,
        "remaining_duration": 2,
        "original_duration": 3,
        "call_id": "c1",
        "cached_at": "2026-11-22T03:47:42.000Z",
        "hits": 1,
    }
    console = Console(width=160, record=True, force_terminal=False)
    for each in _tools({"policy": "p", "tools": [result, {**result, "parameters": "{broken"}]}):
        console.print(each)
    lines = [line for line in console.export_text().splitlines() if "get_user" in line]
    assert 'get_user({"id":5})' in lines[0]
    assert "get_user({broken)" in lines[1]
    assert all(
        "\x1b" not in line and "2 of 3" in line and "1,234" in line and "Mia [2J and more" in line
        for line in lines
    )


def test_without_a_fresh_result_the_policy_is_named() -> None:
    assert list(_tools({"policy": "support", "tools": []})) == [
        "no tool result is fresh under the policy support"
    ]
