"""What forbids or demands is in force until somebody who may withdraws it, or sets another value."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.extraction.constraints import Constraint, in_force
from proxy.core.extraction.reading import Sentence, binding, read, weighed
from tests.support.conversations import assistant, chain_from, user

USER, SYSTEM = 0, 1


@dataclass(frozen=True)
class Language:
    """How one language lays down, and takes back."""

    rules: tuple[str, ...]
    """Prohibitions and demands, some in words that no list has."""
    things: tuple[str, ...]
    withdrawals: tuple[tuple[str, str], ...]
    """A rule, and the sentence that withdraws it."""
    values: tuple[str, ...]
    """What sets a value: of so much there is one at a time."""


PATHS = "/etc/passwd", "/srv/keys", "/var/log/boats.txt", "K-4711", "8080", "9090"
LANGUAGES = {
    "en": Language(
        (
            "Access to {} is forbidden.",
            "Access to {} is now taboo.",
            "Reading {} is strictly verboten from now on.",
            "Never open {}.",
            "Do not touch {} at night.",
            "Stay away from {} from now on.",
            "{} must be locked at night.",
            "You have to lock {} at night.",
            "You should lock {} at night.",
            "Nobody may open {}.",
            "No visits to {}.",
            "Always log every use of {}.",
            "dont ever open {}",
            "Whatever you do, leave {} alone.",
            "Hands off {}.",
            "Steer clear of {}.",
            "You can't use {} for this.",
            "Nobody but me opens {}.",
            "Check the lock of {} after every storm.",
            "If {} is open at night, stop.",
            "Ask me before opening {}.",
            "Always ask me before {} is moved.",
            "Run the tests whenever {} was changed.",
            "Always tell me when {} has been replaced.",
            "Do not replace {}.",
        ),
        (
            "the vault",
            "the crypt",
            "the north gate",
            "the south gate",
            "Anna Berg",
            "the users table",
            *PATHS,
        ),
        (
            ("Access to {} is forbidden.", "Access to {} is no longer forbidden."),
            ("Access to {} is forbidden.", "Access to {} is allowed again."),
            ("Never open {} at night.", "You may open {} at night again."),
            ("Always ask before you open {}.", "Don't ask before you open {}."),
            ("You must lock {}.", "You need not lock {}."),
            ("You have to lock {}.", "You don't have to lock {}."),
            ("You have to lock {}.", "you dont have to lock {}"),
            ("dont open {} at night", "You may open {} at night again."),
            ("Hands off {}.", "{} is no longer off limits."),
            ("Nobody may open {}.", "Anybody may open {} again."),
        ),
        ("The budget for {} is {} dollars.", "Spend no more than {1} dollars on {0}."),
    ),
    "de": Language(
        (
            "Der Zugriff auf {} ist verboten.",
            "Der Zugriff auf {} ist jetzt tabu.",
            "Lösche nie {}.",
            "Du darfst {} nachts nicht öffnen.",
            "Du musst {} nachts abschließen.",
            "Du solltest {} nachts abschließen.",
            "Niemand darf {} öffnen.",
            "Kein Zutritt zu {}.",
            "fass {} nicht an",
            "bitte {} nicht anfassen",
            "Finger weg von {}.",
            "Achte darauf, dass {} nachts zu ist.",
            "Protokolliere immer jede Nutzung von {}.",
            "Sag mir immer Bescheid, wenn {} geändert wurde.",
        ),
        ("die Gruft", "den Keller", "den Turm", "Anna Berg", *PATHS),
        (
            ("Der Zugriff auf {} ist verboten.", "Der Zugriff auf {} ist wieder erlaubt."),
            ("Du darfst {} nachts nicht öffnen.", "Du darfst {} nachts wieder öffnen."),
            ("Der Zugriff auf {} ist untersagt.", "Der Zugriff auf {} ist nicht mehr untersagt."),
            ("öffne {} bitte niemals", "Du darfst {} wieder öffnen."),
        ),
        ("Das Budget für {} ist {} Euro.",),
    ),
    "es": Language(
        (
            "El acceso a {} está prohibido.",
            "El acceso a {} está ahora vedado.",
            "No abras nunca {}.",
            "Debes cerrar {} por la noche.",
            "Tienes que cerrar {} por la noche.",
            "Nadie puede abrir {}.",
            "no toques {}",
            "Ni se te ocurra tocar {}.",
            "que nadie abra {}",
            "Registra siempre cada uso de {}.",
            "Pregúntame siempre antes de cambiar {}.",
            "Nunca cambies {} sin mi permiso.",
        ),
        ("la cripta", "el sótano", "la torre", "Anna Berg", *PATHS),
        (
            ("El acceso a {} está prohibido.", "El acceso a {} está permitido de nuevo."),
            ("El acceso a {} está prohibido.", "El acceso a {} ya no está prohibido."),
        ),
        ("El presupuesto para {} es de {} euros.",),
    ),
    "fr": Language(
        (
            "L'accès à {} est interdit.",
            "L'accès à {} est désormais tabou.",
            "N'ouvre jamais {}.",
            "Tu dois fermer {} la nuit.",
            "Tu devrais fermer {} la nuit.",
            "Pas d'accès à {}.",
            "touche pas à {}",
            "n'ouvrez plus {}",
            "Hors de question de toucher à {}.",
            "Note toujours chaque usage de {}.",
            "Demande-moi toujours avant de remplacer {}.",
        ),
        ("la crypte", "la cave", "la tour", "Anna Berg", *PATHS),
        (
            ("L'accès à {} est interdit.", "L'accès à {} est de nouveau permis."),
            ("L'accès à {} est interdit.", "L'accès à {} n'est plus interdit."),
        ),
        ("Le budget pour {} est de {} euros.",),
    ),
    "ja": Language(
        (
            "{}へのアクセスは禁止です。",
            "{}へのアクセスは今後ご法度です。",
            "{}を絶対に開けないでください。",
            "{}は夜に必ず閉めてください。",
            "{}に触れてはいけません。",
            "{}は夜に閉めるべきです。",
            "{}には触るな",
            "{}は開けないで",
            "{}を開けないこと。",
            "{}を変更する前に必ず聞いてください。",
            "{}を変更したら必ず知らせてください。",
        ),
        ("金庫", "地下室", "北門", "南門", "Anna Berg", *PATHS),
        (
            ("{}を開けないでください。", "{}を開けてもいいです。"),
            ("{}を開けないで", "{}を開けてもいいよ"),
            ("{}へのアクセスは禁止です。", "{}へのアクセスの禁止は解除です。"),
        ),
        ("{}の予算は{}ドルです。",),
    ),
    "zh": Language(
        (
            "禁止访问{}。",
            "{}现在是禁区,必须避开。",
            "不要打开{}。",
            "晚上必须锁好{}。",
            "绝不能触碰{}。",
            "不准打开{}。",
            "你应该锁好{}。",
            "别碰{}",
            "不允许打开{}。",
            "没我同意别打开{}。",
            "把{}换成别的之前必须先问我。",
        ),
        ("金库", "地下室", "北门", "南门", "Anna Berg", *PATHS),
        (
            ("禁止访问{}。", "现在允许访问{}了。"),
            ("不要打开{}。", "可以打开{}。"),
            ("别打开{}", "可以打开{}了"),
        ),
        ("{}的预算是{}元。",),
    ),
}
languages = st.sampled_from(list(LANGUAGES.values()))


@st.composite
def sentences(draw: st.DrawFn) -> str:
    language = draw(languages)
    return draw(st.sampled_from(language.rules)).format(draw(st.sampled_from(language.things)))


authorities = st.sampled_from([USER, SYSTEM])


def said(*told: tuple[str, int]) -> list[Constraint]:
    """The rules of messages, one sentence each, in their order."""
    return [
        Constraint(place, sentence, authority)
        for place, (text, authority) in enumerate(told)
        for sentence in binding(weighed(text))
    ]


def standing(*told: tuple[str, int]) -> set[str]:
    return {rule.sentence.text for rule in in_force(said(*told))[0]}


def test_all_that_is_generated_here_binds() -> None:
    for language in LANGUAGES.values():
        for rule in (*language.rules, *(rule for rule, _ in language.withdrawals), *language.values):
            text = rule.format("the vault", 500)
            assert standing((text, USER)) == {text}


@given(st.lists(st.tuples(sentences(), authorities), min_size=2, max_size=12))
def test_a_rule_stays_whatever_other_rules_are_laid_down(told: list[tuple[str, int]]) -> None:
    assert standing(*told) == {text for text, _ in told}


@pytest.mark.parametrize("language", LANGUAGES.values(), ids=LANGUAGES)
def test_the_same_laid_down_for_two_things_are_two_rules(language: Language) -> None:
    things = [
        thing for thing in language.things if not thing.isdigit()
    ]  # a number may be a value that is set
    for rule, (one, other) in product(language.rules, pairwise((*things, things[0]))):
        told = [rule.format(one), rule.format(other)]
        assert standing(*((text, USER) for text in told)) == set(told)


@given(languages, st.lists(st.tuples(sentences(), authorities), max_size=6), st.data())
def test_a_withdrawal_takes_its_own_rule_away_and_no_other(
    language: Language, others: list[tuple[str, int]], data: st.DataObject
) -> None:
    rule, withdrawal = data.draw(st.sampled_from(language.withdrawals))
    thing, *rest = data.draw(st.permutations(language.things))
    about = {rule.format(thing), withdrawal.format(thing)}
    others = [(text, authority) for text, authority in others if thing not in text]
    beside = (rule.format(rest[0]), USER)
    kept = standing((rule.format(thing), USER), beside, *others, (withdrawal.format(thing), USER))
    assert rule.format(thing) not in kept
    assert kept - about == {beside[0], *(text for text, _ in others)}


@given(languages, st.data())
def test_a_user_withdraws_nothing_that_the_operator_laid_down(
    language: Language, data: st.DataObject
) -> None:
    rule, withdrawal = (
        each.format(data.draw(st.sampled_from(language.things)))
        for each in data.draw(st.sampled_from(language.withdrawals))
    )
    assert rule in standing((rule, SYSTEM), (withdrawal, USER))


@given(languages, st.data())
def test_what_is_laid_down_again_after_it_was_withdrawn_is_in_force(
    language: Language, data: st.DataObject
) -> None:
    thing = data.draw(st.sampled_from(language.things))
    rule, withdrawal = (each.format(thing) for each in data.draw(st.sampled_from(language.withdrawals)))
    assert standing((rule, USER), (withdrawal, USER), (rule, USER)) == {rule}


@given(languages, st.integers(100, 400), st.integers(500, 900), st.data())
def test_another_value_for_the_same_thing_replaces_the_older_one_alone(
    language: Language, less: int, more: int, data: st.DataObject
) -> None:
    value = data.draw(st.sampled_from(language.values))
    things = [thing for thing in language.things if not thing.isdigit()]  # a number among numbers is none
    one, other, *_ = data.draw(st.permutations(things))
    told = [value.format(one, less), value.format(other, less), value.format(one, more)]
    assert standing(*((text, USER) for text in told)) == set(told[1:])


def test_a_sentence_that_binds_nobody_is_told_only_where_it_withdrew_a_rule() -> None:
    permission = "You may open the vault."
    assert standing((permission, USER)) == set()
    assert standing(("Never open the vault.", USER), (permission, USER)) == {permission}
    assert in_force([Constraint(0, Sentence(permission, 0))])[0] == []


# --- rules beside what a command brought


OUTPUTS = (
    "total 8\n-rw-r--r-- 1 anna anna 90 Aug  2 22:10 boat.py",
    "1:def moor():\n2:    # never call this\n3:    return 3",
    'Traceback (most recent call last):\n  File "quay.py", line 3\nValueError: you must not moor here',
    "src/quay.py:12: berth = 3\nsrc/boat.py:9: berth = 4",
    "[INFO] Scanning for projects...\n[ERROR] You must set a goal.",
    "The quay was built by Anna Berg. Boats must wait.",
    "quay boat harbour",
    "",
)
FRAMES = (
    "<returncode>0</returncode>\n<output>\n{}\n</output>",
    "OBSERVATION:\n{}",
    "Observation: {}",
    "Tool output:\n{}\n[Command finished with exit code 0]",
    "[File: /quay.py (2 lines total)]\n{}\n(Current directory: /harbour)\nbash-$",
    "{}",
)
outputs = st.builds(str.format, st.sampled_from(FRAMES), st.sampled_from(OUTPUTS))


@given(st.lists(outputs, min_size=1, max_size=3), sentences(), st.data())
def test_a_rule_in_a_paragraph_beside_what_a_command_brought_binds(
    brought: list[str], rule: str, data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(brought)))
    message = "\n\n".join([*brought[:place], rule, *brought[place:]])
    messages = [user("Mend the quay."), assistant("I look.\n```bash\nls\n```"), user(message)]
    chain = chain_from(messages)
    addresses = chain.addresses(chain.content)
    reading = read(chain.content(2), addresses[2][2])
    assert any(rule in sentence.text for sentence in reading.sentences), (message, addresses[2])
