"""Exact things: their shapes in text, their keys in JSON, and how densely they are told."""

from __future__ import annotations

import json
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.core.dialects.chat.messages import Content
from proxy.core.extraction.facts import MOST_CHARACTERS, MOST_FACTS, Fact, facts_in, facts_of, leaves_of
from proxy.core.extraction.kinds import spaced_in
from proxy.core.extraction.reading import Reading, ReadingCache, Voice, read
from proxy.core.planning.ledger_odds import Mentions
from proxy.core.planning.ledger_packing import OFTEN, Packing, SubstringIndex
from tests.support.conversations import assistant, calling, chain_from, count, encode, result, user
from tests.support.timing import Work, growth


def kinds(text: str) -> dict[str, str]:
    return {fact.value: fact.kind for fact in facts_in(text)}


def reading(message: dict[str, object], thing: str = "") -> Reading:
    return read(Content.of(encode(message)), thing)


def said(reading: Reading) -> list[tuple[Voice, Fact]]:
    return [(voice, fact) for voice, facts in reading.facts for fact in facts]


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        (r'print("\nopen_bridge: ")', "symbol", "open_bridge"),
        (r'log("\t2031-05-04")', "date", "2031-05-04"),
        (r"in C:\new\plan.md", "path", r"C:\new\plan.md"),
        ("see https://example.org/a?b=1.", "url", "https://example.org/a?b=1"),
        ("write to jo.berg@example.org, please", "email", "jo.berg@example.org"),
        ("in /srv/bridge/plan.txt:", "path", "/srv/bridge/plan.txt"),
        ("open src/bridge/open.py:42", "path", "src/bridge/open.py"),
        ("mysql boats </srv/boats/dump.sql", "path", "/srv/boats/dump.sql"),
        ("edit plan.md now", "file", "plan.md"),
        ("it is in 4:plan.py", "file", "plan.py"),
        ("4:from bridge.db import boats", "member", "bridge.db"),
        ("import bridge.db\nprint(bridge.db)", "member", "bridge.db"),
        ("import it from bridge.db today", "file", "bridge.db"),
        ("order #K4711X is late", "code", "#K4711X"),
        ("booking NO6JO3", "code", "NO6JO3"),
        ("for jo_berg_77", "code", "jo_berg_77"),
        ("in eu-north-3", "code", "eu-north-3"),
        ("commit 3f9ac01", "id", "3f9ac01"),
        ("it is 0b9f5c1e-8a4d-4c6f-9e2b-1d3a5c7e9f01", "id", "0b9f5c1e-8a4d-4c6f-9e2b-1d3a5c7e9f01"),
        ("by 2031-05-04 at noon", "date", "2031-05-04"),
        ("on May 4, 2031", "date", "May 4, 2031"),
        ("am 4. März 2031", "date", "4. März 2031"),
        ("el 4 de mayo de 2031", "date", "4 de mayo de 2031"),
        ("5月4日に", "date", "5月4日"),
        ("at 14:35", "time", "14:35"),
        ("costs $1,250.50 in all", "amount", "$1,250.50"),
        ("予算は500万円です", "amount", "500万円"),
        ("needs 40 minutes", "amount", "40 minutes"),
        ("call +41 31 555 01 42", "phone", "+41 31 555 01 42"),
        ("stone==2.1.0 is in", "version", "stone==2.1.0"),
        ("raised BridgeError", "error", "BridgeError"),
        ("ask Anna Berg", "name", "Anna Berg"),
        ("calls open_bridge() once", "symbol", "open_bridge"),
        ("class BridgeMaster:", "symbol", "BridgeMaster"),
        ("船は NO6JO3 です", "code", "NO6JO3"),
        ("x2031年5月4日", "date", "2031年5月4日"),
        ("\n3rd of August 2031? No: 3 August 2031", "date", "3 August 2031"),
        ("about (031) 555 01 42", "phone", "(031) 555 01 42"),
        ("あと 1,000 ドル、7 EUR", "amount", "7 EUR"),
    ],
)
def test_an_exact_thing_is_found_in_text(text: str, kind: str, value: str) -> None:
    assert kinds(text).get(value) == kind


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("run .agent/tools/open.py now", ".agent/tools/open.py"),
        ("in ~/.boats/sessions there are", "~/.boats/sessions"),
        ("'./.cache/boats'", "./.cache/boats"),
        ('import {open} from "../../bridge/open"', "../../bridge/open"),
        ("from '@/lib/bridge'", "@/lib/bridge"),
        ("edit c:/boats/bridge/plan.md now", "c:/boats/bridge/plan.md"),
        ("at C:/boats/plan.md:42", "C:/boats/plan.md"),
        ("in src/app/(harbour)/boats/page.tsx", "src/app/(harbour)/boats/page.tsx"),
        ("in app/boats/[id]/page.tsx:", "app/boats/[id]/page.tsx"),
        ("grep says .agent/plan.md:42:open", ".agent/plan.md"),
        (r"*** Add src/bridge/open.py\n+import", "src/bridge/open.py"),
        ("保存在 /home/用户/文档/报告.txt 中", "/home/用户/文档/报告.txt"),
        ("ファイル src/日本語/設定.jsonを開く", "src/日本語/設定.json"),
        ("路径/home/用户/文档中、结束", "/home/用户"),
        ("в /home/лодки/план.md готов", "/home/лодки/план.md"),
    ],
)
def test_a_path_is_told_whole(text: str, path: str) -> None:
    assert kinds(text) == {path: "path"}


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("her number is +351 912 445 018.", "phone", "+351 912 445 018"),
        ("La propriétaire : 06 41 77 20 93.", "phone", "06 41 77 20 93"),
        ("call +1 (415) 555-0199, or 0941 5573901", "phone", "+1 (415) 555-0199"),
        ("IBAN DE89 3704 0044 0532 0130 00.", "id", "DE89 3704 0044 0532 0130 00"),
        ("card 4711 4711 4711 4711", "id", "4711 4711 4711 4711"),
        ("came to 1.200,50 €.", "amount", "1.200,50 €"),
        ("7 640,50 € au total", "amount", "7 640,50 €"),
        ("CHF 1'250.50, no more", "amount", "CHF 1'250.50"),
        ("in US$ 5.50", "amount", "US$ 5.50"),
        ("宿は一泊2万5千円です。", "amount", "2万5千円"),
        ("3〜5万円", "amount", "3〜5万円"),
        ("内存需要12.5 GB以上", "amount", "12.5 GB"),
        ("at -18 °C tonight", "amount", "-18 °C"),
        ("at 40 km/h", "amount", "40 km/h"),
        ("5-10 kg of stone", "amount", "5-10 kg"),
        ("sum 1.200,50 of it", "number", "1.200,50"),
        ("22:00 CET", "time", "22:00 CET"),
        ("at 6:45 p.m. today", "time", "6:45 p.m."),
        ("2031-05-04 14:30:00 +0200", "time", "14:30:00 +0200"),
        ("04:05:06,123 open", "time", "04:05:06,123"),
        ("on 4\u20136 May", "date", "4\u20136 May"),
        ("令和8年5月3日に", "date", "令和8年5月3日"),
        ("on db-prod-7.internal:5433, now", "code", "db-prod-7.internal:5433"),
        ("clone git@boats.example:quay/site.git.", "code", "git@boats.example:quay/site.git"),
        ("ping 2001:db8::1", "code", "2001:db8::1"),
        ("see https://boats.example/A_(b)?q=1", "url", "https://boats.example/A_(b)?q=1"),
        ("image: boats.example/quay/site:1.16.8-ab3f", "code", "boats.example/quay/site:1.16.8-ab3f"),
        ("push localhost:5000/quay/site:main", "code", "localhost:5000/quay/site:main"),
        (f"pull quay/site@sha256:{'0a' * 32}", "code", f"quay/site@sha256:{'0a' * 32}"),
        ("(doi:10.4711/quay.2031.897).", "code", "10.4711/quay.2031.897"),
        ("in 10.4711/S0140-67(20)301-5, and", "code", "10.4711/S0140-67(20)301-5"),
        ("arXiv:2031.04711v2 [cs.CL]", "code", "arXiv:2031.04711v2"),
    ],
)
def test_a_value_is_told_whole_and_no_part_of_it_beside_it(text: str, kind: str, value: str) -> None:
    found = kinds(text)
    assert found.get(value) == kind
    assert not [each for each in found if each != value and each in value]


def test_a_line_of_a_file_or_a_package_on_a_host_is_no_image() -> None:
    assert kinds("at boats.example/quay/plan.go:42") == {"boats.example/quay/plan.go": "path"}
    assert kinds("at boats.example/quay/plan:42") == {"boats.example/quay/plan": "path"}


@pytest.mark.parametrize(
    "text", ["€10.2500/kg", "-10.1234/5", "at 10.2500/kg", "10.2024/2025", "10.5000/100."]
)
def test_a_price_or_a_fraction_is_no_publication(text: str) -> None:
    assert "code" not in kinds(text).values()


DIFF = """diff --git a/quay/open_it.go b/quay/open_it.go
index 11..12
--- a/quay/open_it.go
+++ b/quay/open_it.go"""


def test_of_a_diff_the_files_are_told_and_not_the_letters_for_old_and_new() -> None:
    assert kinds(DIFF) == {"quay/open_it.go": "path"}
    assert kinds(DIFF.replace("open_it.go b/", "shut_it.go b/")).keys() == {
        "quay/open_it.go",
        "quay/shut_it.go",
    }
    assert kinds("run a/quay/open_it.go b/quay/open_it.go").keys() == {
        "a/quay/open_it.go",
        "b/quay/open_it.go",
    }


@pytest.mark.parametrize(
    "trace",
    [
        "quay.(*Boat).open(0xc00001ff28, {0x0a, 0x17}, ...)\n\t/srv/quay.go:35 +0x2d",
        "[signal SIGSEGV: segmentation violation code=0x1 addr=0x18 pc=0xd02ca4]",
        "<Boat object at 0x7f2a90c1b2d3>",
        "    #1 0x4f3b2c in open /srv/quay.c:3:4",
        "#12  0x00005574f2 in moor (boat=3) at quay.c:3",
        "    #2 0x4f3b2c in moor(int, char) /srv/quay.cc:3",
        "   3:     0x55d0c8a3b0c4 - open",
    ],
)
def test_an_address_in_memory_is_no_fact(trace: str) -> None:
    assert not [value for value in kinds(trace) if "0x" in value]


@pytest.mark.parametrize(
    "text",
    [
        "the sensor at 0x76",
        "it ended with code=0x80070005",
        "open(0x4711)\n",
        "step 3: 0x55d0c8a3b0c4 - the wallet",
        "issue #12 0xdeadbeef in the log",
    ],
)
def test_an_address_of_a_device_and_a_code_are_facts(text: str) -> None:
    assert [value for value in kinds(text) if "0x" in value]


CALLS = {"boats.map": "member", "answer.json": "member"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("47:plan.ts", {"plan.ts": "file"}),
        ("edit .lintrc.json", {".lintrc.json": "file"}),
        ("see ...src/bridge/open.py", {"src/bridge/open.py": "path"}),
        ("boats().open_bridge", {"open_bridge": "symbol"}),
        ("the [plan](docs/plan.md)", {"docs/plan.md": "path"}),
        (r"open_bridge\nshut_bridge", {"open_bridge": "symbol", "shut_bridge": "symbol"}),
        (r"harbour\new\boats.ts", {r"harbour\new\boats.ts": "file"}),
        ("boats.map(row), answer.json() of boats.json (new)", {"boats.json": "file"} | CALLS),
        ("in Boat1Δquay", {"Boat1Δquay": "code"}),
        (r"Get-Content app\boats\[id]\types.ts", {r"app\boats\[id]\types.ts": "file", "Get-Content": "name"}),
        ("L41: open the bridge L42: \nL43: K4711X, see L41-L43", {"K4711X": "code"}),
        ("stone@2.1.0", {"stone@2.1.0": "version"}),
        ("(2031-05-04) 2031-05-05", {"2031-05-04": "date", "2031-05-05": "date"}),
        ("04-05-2031 05-05-2031", {}),
        ("\x1b[33mK4711X\x1b[39m and \x1b[1;36mnothing\x1b[0m", {"K4711X": "code"}),
    ],
)
def test_nothing_is_told_but_what_is_there(text: str, found: dict[str, str]) -> None:
    assert kinds(text) == found


def test_the_number_of_a_line_is_no_key_and_defines_nothing() -> None:
    found = facts_of("L41: K4711X\nL42: OPEN_AT = 3", "")
    assert [(fact.kind, fact.key, fact.value) for fact in found] == [
        ("constant", "", "OPEN_AT"),
        ("code", "", "K4711X"),
    ]


def test_what_a_tag_closes_ends_before_the_tag() -> None:
    assert {fact.value for fact in facts_of("boat: K4711X</boats>", "")} == {"K4711X"}


@pytest.mark.parametrize("end", ["\n", "\r\n", "\x0c", "\u2028"])
def test_each_line_is_read_by_itself_and_one_that_comes_again_tells_nothing_new(end: str) -> None:
    lines = [
        "on May 4, 2031",
        "by Anna Berg",
        "no number here",
        "for 40 minutes",
        "https://example.org/a",
        "v2.0.1",
    ]
    every = [fact for line in lines for fact in facts_in(line)]
    found = facts_in(end.join(lines * 2))
    assert sorted(map(repr, found)) == sorted(map(repr, every))
    assert not facts_in(f"the 4{end}May of Anna{end}Berg took 40{end}minutes")


@pytest.mark.parametrize(
    "text",
    [
        *("boats and/or bridges, e.g. of stone", "1/2 of it", "Well, yes. No.", "--open"),
        *("drwxr-xr-x 2", "-rwsr-xr-x. 1", 'if __name__ == "__main__":'),
        *("<done>0</done>", "root root 58 Aug"),
    ],
)
def test_prose_holds_nothing_exact(text: str) -> None:
    assert kinds(text) == {}


def test_a_value_in_json_that_other_text_surrounds_keeps_its_key() -> None:
    found = facts_of('<output>\n{\n  "revision": "3f9ac01b",\n  "boats": 7\n}\n</output>', "")
    assert ("revision", "3f9ac01b") in [(fact.key, fact.value) for fact in found]


def test_a_value_in_json_keeps_its_key() -> None:
    found = leaves_of(
        '{"boat": {"boat_id": "K77", "legs": [{"leg_number": "L1"}, {"leg_number": "L2"}]}}', ""
    )
    assert found is not None
    assert [(fact.key, fact.value) for fact in found] == [
        ("boat_id", "K77"),
        ("leg_number", "L1"),
        ("leg_number", "L2"),
    ]


def test_of_markup_in_json_the_values_are_told_without_tags() -> None:
    cells = ["<tr><td>quay</td><td>4711.183</td></tr>", "<td>K47X</td>", f"<tr>{'<td>4,711</td>' * 4}</tr>"]
    told = [fact.value for fact in facts_of(json.dumps({"text/html": cells}), "")]
    assert told == ["4711.183", "K47X", "4,711"]


@pytest.mark.parametrize(
    ("value", "fact"),
    [
        ("<b>moored</b>", Fact("text", "moored", "state", "quay\0state")),
        ("<td>K47-113</td>", Fact("code", "K47-113", "state")),
        ('<a href="/quay/K77">boat</a>', Fact("path", "/quay/K77")),
        ("<none>", Fact("text", "<none>", "state", "quay\0state")),
        ("<pending>", Fact("text", "<pending>", "state", "quay\0state")),
    ],
)
def test_a_value_in_an_element_stays_under_its_key_and_one_that_says_there_is_none_is_a_value(
    value: str, fact: Fact
) -> None:
    assert facts_of(json.dumps({"state": value}), "quay") == [fact]


def test_json_within_a_string_is_read_too() -> None:
    inner = json.dumps(
        {"boat_id": "K77", "note": "it waits below the bridge until the water has fallen again"}
    )
    found = leaves_of(json.dumps({"output": inner}), "")
    assert found is not None
    assert Fact("id", "K77", "boat_id") in found


@pytest.mark.parametrize("text", ["", "not json", "{broken", "[1, 2", "12"])
def test_what_is_no_json_is_left_to_be_read_as_text(text: str) -> None:
    assert leaves_of(text, "") is None


def test_no_fact_has_a_line_break_or_a_control_character_or_is_longer_than_a_line() -> None:
    text = json.dumps({"boat_id": "K\u202877", "b_id": "K\n1", "c_id": "x" * 500, "d_id": "K\x0077"})
    for _, fact in said(reading(result("a", text))):
        assert fact.value.isprintable()
        assert len(fact.value) <= 120


def test_whose_voice_it_was_is_known_from_the_role() -> None:
    both = reading(calling("a", content="K1X", arguments='{"boat_id": "K2X"}'))
    assert {fact.value: voice for voice, fact in said(both)} == {"K1X": "assistant", "K2X": "argument"}
    assert [voice for voice, _ in reading(user("K3X")).facts] == ["user"]
    assert [voice for voice, _ in reading(result("a", "K4X")).facts] == ["result"]


@pytest.mark.parametrize("message", [result("a", "You must never stop."), assistant("You must never stop.")])
def test_neither_tools_nor_the_assistant_lay_anything_down(message: dict[str, object]) -> None:
    assert reading(message).sentences == ()


def test_what_a_user_hands_on_of_a_commands_output_lays_nothing_down() -> None:
    output = "<bash-stdout>Never stop.\n\nAlways run it.</bash-stdout><bash-stderr>You must go.</bash-stderr>"
    message = user(f"<bash-input>open</bash-input>\n{output}\nNever touch the bridge.")
    assert [sentence.text for sentence in reading(message).sentences] == ["Never touch the bridge."]


@pytest.mark.parametrize("digit", "059")
@pytest.mark.parametrize(
    "text",
    [
        "so {0}{0}{0}{0}",
        "{0} hours, {0} yen",
        "am {0}. Mai",
        "+49 {0}{0} {0}{0} {0}{0}",
        "0x{0}{0}a is {0}.0.1",
        "Never more than {0}.",
        "id: {0}K",
        '"so {0}"',
        "{{{0}}}",
        "e.g. mp{0}",
        "Anna Berg {0}",
        "RULE {0}: no",
        "import bridge{0}.db",
    ],
)
def test_of_tiny_texts_that_differ_in_digits_alone_each_is_read_as_it_is(text: str, digit: str) -> None:
    alone, among = text.format(digit), f"{text.format(digit)}\n" + " " * 100
    reading(user(text.format(7)))
    of_one, of_long = (reading(user(each)) for each in (alone, among))
    assert (of_one.facts, of_one.sentences) == (of_long.facts, of_long.sentences)


def test_a_message_is_read_once_and_few_are_remembered() -> None:
    readings = ReadingCache(most=8)
    chain = chain_from([user(f"boat K{number}X") for number in range(6)])
    contents = [Content.of(raw) for raw in chain.raws]
    addresses = chain.addresses(contents.__getitem__)
    first = readings.of(addresses[0], lambda: contents[0])
    assert readings.of(addresses[0], lambda: contents[1]) is first
    for address, content in zip(addresses, contents, strict=True):
        readings.of(address, partial(Content, content.members))
    again = readings.of(addresses[0], lambda: contents[0])
    assert again == first
    assert again is not first


def test_of_two_spellings_of_one_message_each_is_read_as_it_is() -> None:
    spellings = ['{"boat": "K1X", "mine": "K1X"}', '{"mine": "K1X", "boat": "K1X"}']
    one, other = (chain_from([calling("a", arguments=arguments)]) for arguments in spellings)
    assert one.messages == other.messages
    readings = ReadingCache()
    first, content = Content.of(one.raws[0]), Content.of(other.raws[0])
    readings.of(one.addresses(lambda _: first)[0], lambda: first)
    assert readings.of(other.addresses(lambda _: content)[0], lambda: content) == read(content)
    assert read(content) != read(first)


def test_a_chain_that_goes_on_decodes_only_calls_that_came_since() -> None:
    rounds = [(calling(f"c{number}"), result(f"c{number}", f"boat K{number}X")) for number in range(3)]
    said = [each for made in rounds for each in made]
    before, whole = chain_from(said[:4]), chain_from(said)
    before.addresses(lambda place: Content.of(before.raws[place]))
    decoded: list[int] = []

    def content(place: int) -> Content:
        decoded.append(place)
        return Content.of(whole.raws[place])

    assert replace(whole, cache=before.cache).addresses(content) == whole.addresses(content)
    assert decoded == [2, 4, 0, 2, 4]


def test_what_a_late_result_of_an_early_call_is_about_is_known() -> None:
    said = [calling("a"), user("and?"), result("a", "wind: 9")]
    asked, whole = chain_from(said[:2]), chain_from(said)
    asked.addresses(lambda place: Content.of(asked.raws[place]))
    grown = replace(whole, cache=asked.cache)
    assert grown.addresses(lambda place: Content.of(grown.raws[place]))[2][2] == ('look {"city": "Bern"}',)


written = st.lists(
    st.sampled_from(
        [*"1234567890 .,-()+$a", "2025", "May", "mai", "Jan", " de ", ". ", "th", " USD", " hours", "euros"]
    )
).map("".join)


@given(written)
def test_dates_and_amounts_are_the_same_in_ascii_and_beside_other_characters(text: str) -> None:
    assert spaced_in(text)[0] == spaced_in(f"{text} é")[0]


# --- packing


def mentioned(*facts: Fact, listed: bool = False) -> list[Mentions]:
    """Each of the facts in a message of its own, the newest first."""
    crowd = 1_000 if listed else 1
    return [Mentions(fact, -place, -place, crowd, frozenset()) for place, fact in enumerate(facts)]


def packed(*facts: Fact, room: int = 200, standing: str = "", listed: bool = False) -> str:
    packing = Packing(room, count, standing, "")
    packing.fill(mentioned(*facts, listed=listed))
    return packing.text


def test_values_of_a_key_stand_on_one_line() -> None:
    assert packed(Fact("id", "K1", "boat_id"), Fact("code", "X9Y"), Fact("id", "K2", "boat_id")) == (
        "boat_id: K1 K2\ncodes: X9Y"
    )


def test_values_with_blanks_are_told_apart_by_commas() -> None:
    assert packed(Fact("name", "Anna Berg"), Fact("name", "Jo Stein")) == "names: Anna Berg, Jo Stein"


def test_a_value_that_another_contains_is_told_within_it_whichever_comes_first() -> None:
    path, opened = Fact("path", "tests/quay.py"), Fact("text", "cat tests/quay.py", "command")
    assert packed(path, opened) == packed(opened, path) == "command: cat tests/quay.py"
    part, whole = Fact("member", "self.boats"), Fact("member", "self.boats.add")
    assert packed(part, whole) == packed(whole, part) == "in code: self.boats.add"
    assert packed(Fact("id", "K1", "boat_id"), Fact("text", "open K1")) == "boat_id: K1\ntexts: open K1"


def test_a_word_of_prose_does_not_stand_for_what_is_called_so() -> None:
    note, status = Fact("text", "active since May", "note"), Fact("text", "active", "status")
    assert packed(note, status) == "note: active since May\nstatus: active"
    told, name = Fact("text", "sail to the quay", "plan"), Fact("function", "sail")
    assert packed(told, name) == "plan: sail to the quay\nfunctions: sail"


def test_what_contains_a_more_important_value_is_as_important() -> None:
    path, opened = Fact("path", "tests/quay.py"), Fact("text", "cat tests/quay.py")
    others = [Fact("text", f"the boat at quay {number}") for number in range(30)]
    packing = Packing(636, len, "", "")  # commas make them longer than each by itself suggests
    packing.fill(mentioned(path, *others, opened))
    assert "cat tests/quay.py" in packing.text
    assert "quay 29" not in packing.text


@pytest.mark.parametrize(
    "facts",
    [
        (Fact("amount", "$12"), Fact("amount", "$12.50")),
        (Fact("version", "v2.1"), Fact("version", "v2.1.4")),
        (Fact("number", "31", "quays"), Fact("phone", "+41 31 555 01 42")),
        (Fact("number", "500", "boats"), Fact("number", "1,500")),
    ],
)
def test_a_number_is_no_part_of_a_longer_one(facts: tuple[Fact, Fact]) -> None:
    for order in (facts, facts[::-1]):
        assert packed(*order) not in map(packed, facts)


def test_what_the_view_says_already_is_not_told_again() -> None:
    assert (
        packed(Fact("id", "K1", "boat_id"), Fact("id", "K2", "boat_id"), standing="boat K1 waits")
        == "boat_id: K2"
    )


def test_what_a_long_view_says_is_not_told_again_however_much_was_looked_for() -> None:
    shown = [Fact("code", f"K{number}X") for number in range(1_000, 1_300)]
    missing = [Fact("code", "K129X"), Fact("code", "X1000K"), Fact("code", "Z9")]
    parts = [Fact("number", "1299"), Fact("code", "K1298"), Fact("code", "9X")]
    standing = " ".join(fact.value for fact in shown)
    assert packed(*shown, *missing, *parts, standing=standing) == "codes: K129X X1000K Z9"


def searching(number: int) -> Work:
    """So many values are looked for in a text that has as many like them."""
    standing = SubstringIndex(" ".join(f"run/{each:06x}/log took {each} ms;" for each in range(number)))

    def work() -> None:
        found = (f"{each} ms" in standing and f"{each:06x}/l" in standing for each in range(0, number, 2))
        assert all(found)
        assert all(f"run/{each:06x}/log{each}" not in standing for each in range(number))

    return work


def test_four_times_as_many_values_in_four_times_the_text_take_some_four_times_the_work() -> None:
    assert growth(searching, 5_000, 20_000) <= 8


@given(st.text("ab1 /", max_size=300), st.lists(st.text("ab1 /", min_size=1, max_size=9), min_size=1))
def test_what_stands_in_a_text_is_found_however_often_it_was_searched(text: str, values: list[str]) -> None:
    standing = SubstringIndex(text)
    for _ in range(OFTEN):
        assert "" in standing
    asked = [*values, *(text[at : at + 7] for at in range(0, len(text), 5))]
    assert [value in standing for value in asked] == [value in text for value in asked]


def test_a_name_within_a_path_that_stands_there_is_not_told_again() -> None:
    assert packed(
        Fact("path", "/srv/bridge/plan.txt"), Fact("file", "plan.txt"), Fact("path", "/srv/bridge")
    ) == ("paths: /srv/bridge/plan.txt")


def test_the_directory_of_a_listing_is_named_once() -> None:
    paths = [Fact("path", f"/srv/bridge/{name}") for name in ("a.txt", "b.txt")]
    assert packed(*paths, listed=True) == "/srv/bridge/: a.txt b.txt"


@pytest.mark.parametrize("room", [0, 5, 10, 40])
def test_no_more_is_told_than_there_is_room_for(room: int) -> None:
    text = packed(*(Fact("id", f"K{number}", "boat_id") for number in range(50)), room=room)
    assert text == "" or count(text) <= room


@pytest.mark.parametrize(
    "piece", ["1,", "a_", "/a", "k: v1x\n", "never ", "darf ", "12 ", "$1", "a@", "[", "4 de ", "../"]
)
def test_of_a_huge_text_only_a_bounded_part_is_read(piece: str) -> None:
    end = " K4711X"
    text = (
        piece * (MOST_CHARACTERS // len(piece))
        + "K8822X "
        + piece * (2 * MOST_CHARACTERS // len(piece))
        + end
    )
    values = {fact.value for _, fact in said(reading(user(text)))}
    assert "K8822X" not in values
    assert len(values) <= MOST_FACTS


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("GET /index 200 12 ms", "12 ms"),
        ("status 404 3 ms 1.5 KB", "3 ms"),
        ("item 4711 2 kg", "2 kg"),
        ("In 2026 100 euros", "100 euros"),
        ("room 12 3 May 2026", "3 May 2026"),
    ],
)
def test_a_number_before_a_value_is_no_part_of_it(text: str, value: str) -> None:
    assert value in [fact.value for fact in facts_in(text)]


def test_a_number_of_thousands_is_no_phone_number() -> None:
    assert [(fact.kind, fact.value) for fact in facts_in("rows 3 000 000")] == [("number", "3 000 000")]


def test_a_moment_that_only_tools_told_counts_less_but_for_the_end_of_a_day() -> None:
    def odds(moment: str, *voices: Voice) -> float:
        return Mentions(Fact("date", moment), 0, 0, 1, frozenset(voices)).log_odds

    moment, evening, midnight = (f"2031-05-04T{time}Z" for time in ("12:17:45", "17:00:00", "23:59:59"))
    assert odds(moment, "result") < odds(evening, "result") == odds(midnight, "result")
    for voice in ("user", "assistant", "argument", "system"):
        assert odds(moment, voice, "result") == odds(evening, voice, "result")
