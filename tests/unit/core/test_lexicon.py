"""A fact of language stands once, and holds wherever words are looked for."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.adapters.search import spaced, terms_of
from proxy.core.extraction.constraints import Constraint, in_force
from proxy.core.extraction.facts import Fact, facts_in
from proxy.core.extraction.reading import Sentence, sentences_of, strength_of
from proxy.core.extraction.subjects import subject_of
from proxy.core.summaries.verification import TURNED, Evidence, fault_in
from proxy.core.text.lexicon import rules as lexicon
from proxy.core.text.lexicon import words
from proxy.core.text.lexicon.patterns import Wording, any_of, folded
from proxy.core.text.lexicon.rules import NEGATION
from proxy.core.text.numbers import all_numbers
from proxy.core.text.similarity import tfidf
from proxy.core.text.words import language_of, words_of


def test_no_word_stands_in_two_lists_that_are_used_together() -> None:
    claims = (words.FUNCTION_WORDS, words.LIGHT_WORDS, words.MODAL_WORDS, words.CLAIM_WORDS)
    ledger = (words.FUNCTION_WORDS, words.MODAL_WORDS, words.STATE_WORDS)
    questions = (words.FUNCTION_WORDS, words.LIGHT_WORDS, words.WORDS_OF_OCCASION)
    for lists in (claims, ledger, questions):
        assert len(frozenset[str]().union(*lists)) == sum(map(len, lists))


@pytest.mark.parametrize(
    "prohibition",
    [
        "Access to {} is forbidden.",
        "Access to {} is prohibited.",
        "Access to {} is banned.",
        "{} is off-limits.",
        "Stop reading {}.",
        "Avoid {} at all times.",
        "Nobody may open {}.",
        "Der Zugriff auf {} ist verboten.",
        "Der Zugriff auf {} ist untersagt.",
        "El acceso a {} está prohibido.",
        "Il est interdit de lire {}.",
        "{} の読み取りは避けてください。",
        "{} へのアクセスは禁止。",
        "严禁读取 {} 。",
    ],
)
def test_the_same_forbidden_of_two_things_is_two_rules(prohibition: str) -> None:
    both = [prohibition.format(path) for path in ("/etc/passwd", "/srv/keys")]
    rules = [Constraint(place, Sentence(text, 3)) for place, text in enumerate(both)]
    assert [rule.sentence.text for rule in reversed(in_force(rules)[0])] == both


@pytest.mark.parametrize(
    ("sentence", "strength"),
    [
        ("I forbid boats at night.", 3),
        ("Boats are banned at night.", 3),
        ("The guild disallowed boats.", 3),
        ("Nachts sind Boote untersagt.", 3),
        ("Los barcos están prohibidos.", 3),
        ("Les barques sont interdites.", 3),
        ("The bridge fee was lowered.", 1),
        ("The crew was reduced.", 1),
        ("Die Fahrt ist verschoben.", 1),
        ("桥名改成北桥。", 1),
        ("The family has an extended house.", 0),
    ],
)
def test_what_forbids_and_what_tells_of_a_change_binds(sentence: str, strength: int) -> None:
    assert strength_of(sentence) == strength


def test_another_is_no_negation() -> None:
    assert NEGATION.search("别的路") is None
    assert NEGATION.search("别走") is not None


@pytest.mark.parametrize(
    ("sentence", "says"),
    [
        ("Ne cite plus les sources.", "forbids"),
        ("Ne mets plus de commentaires.", "forbids"),
        ("Ne mets plus d'emojis.", "forbids"),
        ("Ne compte plus les lignes.", "forbids"),
        ("Ne mets plus de 3 images.", ""),
        ("Ne mets plus de trois images.", ""),
        ("Ne mets plus d'une image.", ""),
        ("Ne mets au plus 3 images.", ""),
        ("Ne cite en bas de page que les sources les plus récentes.", ""),
        ("L'interdiction de déployer est levée, elle ne vaut plus.", "withdraws"),
        ("L'interdiction de déployer est levée, elle ne te lie plus.", "withdraws"),
        ("L'interdiction de déployer ne tient plus.", "withdraws"),
    ],
)
def test_what_is_no_more_in_french_is_forbidden_limited_or_withdrawn(sentence: str, says: str) -> None:
    subject = subject_of(sentence)
    assert ("forbids" if subject.forbids else "withdraws" if subject.withdraws else "") == says


def test_a_french_rule_about_the_newest_is_not_withdrawn_by_its_like() -> None:
    rules = ["Ne cite en bas de page que les sources les plus récentes.", "Cite les sources en bas de page."]
    assert not in_force([Constraint(place, Sentence(text, 3)) for place, text in enumerate(rules)])[1]
    assert not NEGATION.search("Ana ne mange plus que du riz.")


@pytest.mark.parametrize("end", ["were banned", "were disallowed", "were off-limits"])
def test_what_was_demanded_and_is_told_as_forbidden_is_turned_around(end: str) -> None:
    demanded = "You must run the smoke tests."
    assert fault_in(f"Smoke tests run by hand {end}.", Evidence(demanded, demanded)) == TURNED


def test_modal_words_and_users_tell_no_two_rules_apart() -> None:
    assert subject_of("Users might harbour boats").words == subject_of("The user may harbour boats").words
    assert subject_of("Nutzer dürfen Boote lagern").words == subject_of("Der Nutzer darf Boote lagern").words


def test_what_stands_before_or_after_tells_two_rules_apart_and_not_two_questions() -> None:
    assert words_of("ship before noon") != words_of("ship after noon")
    assert terms_of("ship before noon") == terms_of("ship after noon") == ["ship", "noon"]


@pytest.mark.parametrize(
    "question",
    ["Is there ever a ferry without stops, please?", "Gibt es dann kein ferry mit stops, bitte?"],
)
def test_negations_and_courtesy_are_not_what_a_question_is_about(question: str) -> None:
    assert [term for term in terms_of(question) if term != "gibt"] == ["ferry", "stops"]


def test_negations_are_not_what_a_claim_is_about() -> None:
    assert words_of("Never sail without lamps") == words_of("Sail, not only with lamps")


@pytest.mark.parametrize("text", ["북쪽다리", "สะพานเหนือ", "北の橋", "北方大桥"])
def test_what_is_written_without_spaces_is_read_in_parts_everywhere(text: str) -> None:
    assert len(spaced(text).split()) > 1
    assert len(terms_of(text)) > 1
    assert len(words_of(text)) > 1 or text == "北の橋"  # hiragana is grammar
    assert len(tfidf([text, "x"]).terms(0)) > 1


def test_rare_characters_are_characters() -> None:
    assert language_of("㐀㐁々𠀀") == "zh"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("fifteen boats", "15"),
        ("vierzig Boote", "40"),
        ("a million crowns", "1000000"),
        ("5. Okt", "10"),
        ("5. Dez", "12"),
        ("5 Sept", "9"),
        ("sept ponts", "7"),
    ],
)
def test_numerals_and_months_are_known_in_all_their_forms(text: str, number: str) -> None:
    assert number in all_numbers(text)


def test_amounts_are_known_in_digits_and_in_words() -> None:
    assert facts_in("The fee is 1 pound.") == [Fact("amount", "1 pound")]
    assert subject_of("The cap is eleven pounds").values.keys() == {"quantity"}
    assert subject_of("The cap is eleven pound").values.keys() == {"quantity"}


@pytest.mark.parametrize("mark", ["?", "\uff1f"])
def test_a_question_lays_down_nothing_whichever_width_its_mark_has(mark: str) -> None:
    assert strength_of(f"必ず英語で答えるべき{mark}") == 0
    assert strength_of("必ず英語で答えること。") > 0


@pytest.mark.parametrize("mark", ["!", "\uff01"])
def test_a_sentence_ends_at_a_mark_of_either_width(mark: str) -> None:
    rule, question = f"答えは必ず英語で書いてください{mark}", "港の価格はいくらですか?"
    assert [*sentences_of(rule + question)] == [rule, question]


ALTERNATIVES = "be|[ab]c|abc|Bed|ab(?:c|d)?|b?e|c|ca|be"
UNSPACED_ALTERNATIVES = "山川|山|a山|^海|川+"


@given(text=st.text(st.sampled_from("aAbBcCdDeE 山川海\n"), max_size=12))
@pytest.mark.parametrize("flags", [re.NOFLAG, re.IGNORECASE])
def test_of_several_words_that_begin_alike_the_first_one_counts(text: str, flags: re.RegexFlag) -> None:
    plain = re.compile(rf"\b(?:{ALTERNATIVES})\b|{UNSPACED_ALTERNATIVES}", flags)
    grouped = re.compile(any_of((ALTERNATIVES, UNSPACED_ALTERNATIVES)), flags)
    assert [found.span() for found in grouped.finditer(text)] == [
        found.span() for found in plain.finditer(text)
    ]


def test_a_wording_is_found_as_a_pattern_finds_it_that_ignores_case() -> None:
    """Also beside characters of which lower case makes two, and that such a pattern takes for others."""
    every = "".join(map(chr, range(1, 0xD800)))
    assert len(folded(every)) == len(every)
    assert [each.span() for each in re.finditer("[a-zà-ÿœ]", folded(every))] == [
        each.span() for each in re.finditer("[a-zà-ÿœ]", every, re.IGNORECASE)
    ]
    said = (
        "\u0130\u0130 never \u017ftop: das IST nicht mehr VERBOTEN, n\u2019est plus INTERDIT, 不再禁止,"
        " YOU MAY, aLways AGA\u0130N, \u0131nstead"
    )
    texts = [said, said.lower(), said.upper(), said.title(), "Do NOT deploy; it is no longer Required."]
    wordings = [each for each in vars(lexicon).values() if isinstance(each, Wording)]
    assert len(wordings) > 10
    for wording in wordings:
        pattern = re.compile(wording.pattern, re.IGNORECASE)
        for text in texts:
            spans = [match and match.span() for match in (pattern.search(text), wording.search(text))]
            assert spans[0] == spans[1]
            assert wording.sub(" ; ", text) == pattern.sub(" ; ", text)
