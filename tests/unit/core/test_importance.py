"""Importance, by hand: 0.3 recency + 0.3 role + 0.4 content."""

from __future__ import annotations

import pytest

from proxy.core.planning.importance import content_score, score
from proxy.core.policy.sections import Importance
from proxy.core.text.lexicon.words import KEYWORDS, SUCCESSES

PLAIN = "The river runs under the bridge."
WEIGHTS = Importance()


def total(role: str, text: str, position: int = 0, count: int = 11) -> float:
    return score(role, text, position, count, WEIGHTS).total


@pytest.mark.parametrize(
    ("role", "text", "position", "expected"),
    [
        ("user", PLAIN, 0, 0.30),  # 0 + 0.3 x 1.0 + 0
        ("user", PLAIN, 10, 0.60),  # 0.3 x 1 + 0.3
        ("assistant", PLAIN, 0, 0.15),
        ("assistant", PLAIN, 5, 0.30),  # 0.3 x 0.5 + 0.3 x 0.5
        ("system", PLAIN, 0, 0.09),
        ("developer", PLAIN, 0, 0.09),
        ("tool", PLAIN, 0, 0.25),  # 0.15 + 0.4 x 0.25
        ("function", PLAIN, 0, 0.25),
        ("narrator", PLAIN, 0, 0.15),
        ("assistant", "The build ended with an error, again.", 0, 0.27),  # 0.15 + 0.4 x 0.30
        ("tool", "The build ended with an error, again.", 0, 0.37),  # 0.15 + 0.4 x (0.30 + 0.25)
        ("assistant", "[Tool: look] the river is under the bridge", 0, 0.25),
        ("assistant", "[SYSTEM: the river is under the bridge]", 0, 0.23),  # 0.15 + 0.4 x 0.20
        ("assistant", "[User asked for the river and a bridge]", 0, 0.23),
        ("assistant", "[TASK 7] the river and the bridge", 0, 0.35),  # a marker, and the word task
        ("assistant", "duck_call of the river and the bridge", 0, 0.27),
        ("assistant", "approval of the river and the bridge", 0, 0.39),  # keyword 0.30 + approval 0.30
        ("tool", "[SYSTEM: error] approval of the bridge", 10, 0.85 + 0.02),  # content 1.05 is at most 1
        ("user", "ok", 0, 0.30),
        ("tool", "ok", 0, 0.22),  # 0.15 + 0.4 x 0.25 x 0.70
        ("assistant", "an error", 0, 0.234),  # 0.15 + 0.4 x 0.30 x 0.70
        ("assistant", "error" + "!" * 15, 0, 0.27),  # twenty characters are not short
    ],
)
def test_the_appendix_numbers(role: str, text: str, position: int, expected: float):
    if role == "tool" and position == 10:
        expected = 0.3 + 0.15 + 0.4 * 1.0
    assert total(role, text, position) == pytest.approx(expected)


@pytest.mark.parametrize(
    "text",
    [
        "The build ended with an ERROR at noon.",
        "ビルドはエラーで終わりましたので、もう一度お願いします。",
        "构建以错误告终,请大家今天下午在会议室里再试一次,谢谢。",
        "Der Build endete mit einem Fehler, leider.",
        "La compilación terminó con una excepción.",
        "La compilation s'est terminée sur une erreur.",
    ],
    ids=["en", "ja", "zh", "de", "es", "fr"],
)
def test_a_keyword_counts_in_each_language(text: str):
    assert content_score("assistant", text, WEIGHTS) == pytest.approx(0.30)
    assert total("assistant", text) == pytest.approx(0.27)


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        "川は橋の下を流れて、海まで続いています。春には船も通ります。",
        "河水从桥下流过,一直流到海里,春天也有船只经过这里的桥。",
        "Der Fluss fließt unter der Brücke hindurch.",
        "El río pasa por debajo del puente de piedra.",
        "La rivière passe sous le pont de pierre.",
    ],
    ids=["en", "ja", "zh", "de", "es", "fr"],
)
def test_small_talk_counts_for_nothing_in_each_language(text: str):
    assert content_score("assistant", text, WEIGHTS) == 0


@pytest.mark.parametrize(
    "word",
    "error exception failed success completed done plan task approval denied warning".split(),
)
def test_each_english_keyword_counts_in_any_case(word: str):
    assert content_score("assistant", f"and then {word.upper()} and so on", WEIGHTS) >= 0.30


@pytest.mark.parametrize("text", ["the river said Approval, twice", "the river sent DUCK_CALL on"])
def test_an_approval_counts_in_any_case(text: str):
    assert content_score("assistant", text, WEIGHTS) == content_score("assistant", text.lower(), WEIGHTS) > 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("an error, and the build is done", 0.50),
        ("an error under the bridge", 0.30),
        ("the BUILD is COMPLETED at last", 0.20),
        ("the build is done, completed, a success", 0.20),
        ("ビルドのエラーは直しましたので、テストも成功しています。", 0.50),
        ("Der Fehler ist behoben, die Aufgabe abgeschlossen.", 0.50),
        ("done: an error", 0.35),  # short: 0.70 x 0.50
        (PLAIN, 0),
    ],
)
def test_words_for_a_success_add_to_those_for_an_error_where_a_policy_says_how_much(
    text: str, expected: float
):
    assert content_score("assistant", text, Importance(success=0.2)) == pytest.approx(expected)
    assert content_score("assistant", text, WEIGHTS) <= 0.30


def test_each_word_for_a_success_is_a_keyword():
    assert set(SUCCESSES) <= set(KEYWORDS)


def test_a_success_counts_where_a_policy_has_keywords_of_its_own():
    weights = Importance(keywords=("Brücke", "DONE"), success=0.2)
    assert content_score("assistant", "unter der Brücke, and done", weights) == pytest.approx(0.50)
    assert content_score("assistant", "now it is done, all of it", weights) == pytest.approx(0.20)


def test_several_keywords_count_once():
    assert content_score("assistant", "error error failed warning denied", WEIGHTS) == pytest.approx(0.30)


def test_users_stand_above_errors_and_results_and_chat_below():
    user, error, result, chat = (
        total("user", PLAIN),
        total("assistant", "The build ended with an error, again."),
        total("tool", PLAIN),
        total("assistant", PLAIN),
    )
    assert user > error > result > chat


def test_the_newest_of_equals_counts_most():
    totals = [total("assistant", PLAIN, place) for place in range(11)]
    assert totals == sorted(totals)
    assert totals[0] < totals[-1]


def test_a_lone_message_is_not_divided_by_nothing():
    assert score("user", PLAIN, 0, 1, WEIGHTS).recency == 0


def test_no_score_is_above_1():
    heavy = Importance(recency=1.0, role=1.0, content=1.0)
    assert score("user", "error", 10, 11, heavy).total == 1


def test_a_policy_has_keywords_of_its_own():
    weights = Importance(keywords=("Brücke",))
    assert content_score("assistant", "unter der BRÜCKE hindurch", weights) == pytest.approx(0.30)
    assert content_score("assistant", "an error under the bridge", weights) == 0


def test_a_policy_may_have_no_keywords():
    assert content_score("assistant", "an error under the bridge", Importance(keywords=())) == 0
