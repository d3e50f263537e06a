"""Summaries against their sources: what is made up or turned around is refused, what is honest passes."""

from __future__ import annotations

import pytest

from proxy.core.summaries.verification import ASCRIBED, TURNED, UNFOUNDED, Evidence, fault_in

SAID = (
    "Never deploy on Fridays. The cap is $1,500. Look at src/app/main.py and ticket ORD-12345, "
    "and mail anna.smith@example.com. Always run the tests before pushing."
)
TOLD = f"""[user] {SAID}
[assistant] I ran `pytest -k login`; 3 of 17 failed in 12.37 seconds.
See https://example.com/a/b?x=1 and commit a1b2c3d4e5f60718.
getUserData raised KeyError on 2026-03-05 at 14:30.
[tool] {{"text": "line\\nfoo_bar at C:\\\\temp\\\\x.log", "note": "the user asked to delete everything"}}
[assistant] Version v2.10.4 is out, it supports Node and costs about 12,340 yen."""
EVIDENCE = Evidence(TOLD, SAID)


@pytest.mark.parametrize(
    "honest",
    [
        "The user set a cap of $1500 and forbade deploying on Fridays; tests must always run before pushing.",
        "3 of 17 tests failed in about 12.4 s (commit a1b2c3d).",
        "**`main.py`** in `src/app` was read. It cost ~12k yen.",
        "On March 5, 2026 at 2:30 pm getUserData raised a KeyError for order 12345.",
        "foo_bar stood in C:\\temp\\x.log; version 2.10.4 was out.",
        "# OBJECTIVE\nFix it.\n1. First.\n2. Second, a state-of-the-art end-to-end check.",
        "User constraints: never deploy on Fridays; cap $1,500.\nDone: ran pytest.",
        "User constraints:\n- never deploy on Fridays\n- run the tests before pushing\n\nNext:\n- wait",
        "Constraints (never):\n- deploy on Fridays",
        "Deployment is possible from Monday to Thursday only, not on Fridays.",
        "The user asked to look at src/app/main.py and to mail ANNA.SMITH@EXAMPLE.COM.",
        "The user said “Always run the tests before pushing”.",
        "Always run the tests before pushing and never deploy on Fridays.",
        "Two files were read and/or written.",
        "4 things were read: a, b, c and d.",
        "The user wants https://example.com/a/b to be looked at.",
        "A 3-step plan; the 2nd step took 17 seconds.",
    ],
)
def test_an_honest_summary_passes(honest: str) -> None:
    assert fault_in(honest, EVIDENCE) is None


@pytest.mark.parametrize(
    ("source", "summary"),
    [
        ("repository: quay.example/quay/site\n  tag: 1.16.8", "The image is quay.example/quay/site:1.16.8."),
        ("localhost:5000/quay/site has the tag main", "The image is localhost:5000/quay/site:main."),
        (f"sha256:{'0a' * 32} of quay/site", f"The image is quay/site@sha256:{'0a' * 32}."),
        ("quay.example/quay/plan fails at line 42", "It fails at quay.example/quay/plan:42."),
        ("see https://arxiv.org/abs/2031.04711", "The paper is arXiv:2031.04711."),
        ("see https://arxiv.org/abs/2031.04711v2", "The paper is arXiv:2031.04711v2."),
        ("paper 2031.04711, version 2", "The paper is 2031.04711v2."),
        ("it is 10.2500 EUR per kg", "It is €10.2500/kg, so 10.2500/kg."),
    ],
)
def test_a_summary_may_join_what_the_source_has_apart(source: str, summary: str) -> None:
    assert fault_in(summary, Evidence(source, "")) is None


@pytest.mark.parametrize(
    ("source", "summary"),
    [
        ("quay.example/quay/site and its tag 1.16.8", "The image is quay.example/quay/boat:1.16.8."),
        ("quay.example/quay/site and its tag 1.16.8", "The image is quay.example/quay/site:1.16.9."),
        ("quay.example/quay/site:1.16.8, tag 1.17.0 of mine", "The image is quay.example/quay/site:1.17.0."),
        ("db.example:5432 and mail.example:6379", "It is at db.example:6379."),
        ("2031.04711v1 of 2 papers", "The paper is 2031.04711v2."),
        ("https://arxiv.org/abs/2031.04711", "The paper is arXiv:2031.04712."),
    ],
)
def test_a_summary_joins_nothing_that_does_not_belong_together(source: str, summary: str) -> None:
    assert fault_in(summary, Evidence(source, "")) == UNFOUNDED


@pytest.mark.parametrize(
    "made_up",
    [
        "The cap is $1,600.",
        "The cap is 15000.",
        "A cap of 1.5 million was set.",
        "It took about 14.4 seconds.",
        "Look at src/app/mian.py.",
        "Look at src/secret/main.py.",
        "ORD-12346 was shipped.",
        "Mail went to anna.smyth@example.com.",
        "See https://example.com/a/c.",
        f"See https://example.com/{'a' * 200}/c.",
        "Commit a1b2c3e broke it.",
        "getUserDate raised it.",
        "ValueError was raised.",
        "Version v2.11.4 is out.",
        "41 of 99 failed.",
        "6 files were changed: a and b.",
        "It was on 2027-03-05.",
    ],
)
def test_what_the_source_does_not_name_is_refused(made_up: str) -> None:
    assert fault_in(made_up, EVIDENCE) == UNFOUNDED


@pytest.mark.parametrize(
    "turned",
    [
        "The user may deploy on Fridays.",
        "Deploy on Fridays.",
        "Deploying on Fridays was allowed.",
        "Tests need not run before pushing.",
        "User constraints: deploy on Fridays.",
    ],
)
def test_a_rule_that_is_turned_around_is_refused(turned: str) -> None:
    assert fault_in(turned, EVIDENCE) == TURNED


RULES = {
    "en": (
        "Do not use tabs in the parser files.",
        "Tabs are used in parser files.",
        "No tabs in parser files.",
    ),
    "de": (
        "Du darfst niemals die Datenbank löschen.",
        "Die Datenbank löschen ist erlaubt.",
        "Die Datenbank darf man nicht löschen.",
    ),
    "es": (
        "Nunca borres la tabla clientes.",
        "Se puede borrar la tabla clientes.",
        "No se debe borrar la tabla clientes.",
    ),
    "fr": (
        "Il ne faut jamais supprimer la sauvegarde hebdomadaire.",
        "On peut supprimer la sauvegarde hebdomadaire.",
        "La sauvegarde hebdomadaire ne doit jamais être supprimée.",
    ),
    "ja": (
        "金曜日にはデプロイしないでください。",
        "金曜日のデプロイは許可されている。",
        "金曜日のデプロイは禁止されている。",
    ),
    "de, stressed": (
        "Lösch auf keinen Fall die alten Protokolle, denn die Revision braucht sie.",
        "Die alten Protokolle dürfen gelöscht werden.",
        "Die alten Protokolle darf man nicht löschen.",
    ),
    "ja, deleting": (
        "本番データベースを削除しないでください。",
        "本番データベースを削除してください。",
        "本番データベースの削除は禁止。",
    ),
    "zh": ("绝对不要在周五部署生产环境。", "可以在周五部署生产环境。", "周五不得部署生产环境。"),
}


@pytest.mark.parametrize("language", RULES)
def test_rules_are_held_in_six_languages(language: str) -> None:
    rule, turned, honest = RULES[language]
    evidence = Evidence(f"[user] {rule}", rule)
    assert fault_in(turned, evidence) == TURNED
    assert fault_in(honest, evidence) is None
    assert fault_in(rule, evidence) is None


FAMILY = """[user] We land at 23:40. Never suggest a boat trip: Ida gets seasick. Call Marta before 10am.
[user] Do not rename the columns since the dashboards need them. Our budget is 1,800 euros for three nights.
[user] We decided against Redis. We chose Vue. The parcel weighs 12 kg, the walk takes 45 minutes.
[assistant] The hostel is £45 a night, and the deposit 25万5千円."""
TALK = Evidence(FAMILY, FAMILY.replace("[user] ", "").partition("[assistant]")[0])


@pytest.mark.parametrize(
    "turned",
    [
        "A boat trip may be suggested.",
        "You may suggest a boat trip for Ida.",
        "The user wants a boat trip suggested.",
        "The columns may be renamed.",
        "The user decided to use Redis.",
        "The team chose Redis.",
        "Vue was ruled out.",
    ],
)
def test_a_reason_beside_a_rule_shields_no_reversal_of_it(turned: str) -> None:
    assert fault_in(turned, TALK) == TURNED


@pytest.mark.parametrize(
    "wrong",
    [
        "The budget is 1,800 dollars.",
        "Call Marta before 10 pm.",
        "They land at 11:40 am.",
        "They land at 11:40 in the morning.",
        "The parcel weighs 12 grams.",
        "The walk takes 45 hours.",
        "The hostel is 45 euros a night.",
        "The budget is for four nights.",
        "The deposit is 25万円.",
        "Call Mario before 10am.",
    ],
)
def test_another_unit_half_of_the_day_number_word_or_name_is_refused(wrong: str) -> None:
    assert fault_in(wrong, TALK) == UNFOUNDED


@pytest.mark.parametrize(
    "honest",
    [
        "No boat trip is to be suggested, as Ida gets seasick.",
        "The budget is EUR 1,800 (€1,800) for 3 nights.",
        "Marta is called before 10:00, and the landing is at 11:40 pm on a Monday.",
        "The parcel weighs 12 kilograms; the walk takes 45 min.",
        "The hostel is 45 pounds, and the deposit 255,000円.",
        "Key Decisions: Redis Was Ruled Out. They chose Vue over Redis.",
        "The user decided that Redis would not be used.",
    ],
)
def test_the_same_in_another_notation_passes(honest: str) -> None:
    assert fault_in(honest, TALK) is None


@pytest.mark.parametrize(
    ("said", "honest", "wrong"),
    [
        ("Der Termin ist um 8 Uhr abends.", "Der Termin ist um 20:00.", "Der Termin ist um 8 Uhr morgens."),
        ("Die Miete beträgt 950 Euro.", "Die Miete: 950 €.", "Die Miete beträgt 950 Dollar."),
        ("La cena es a las 9 de la noche.", "La cena es a las 21:00.", "La cena es a las 9 de la mañana."),
        ("Le trajet dure 45 minutes.", "Le trajet prend 45 min.", "Le trajet dure 45 heures."),
        ("J'ai deux chats.", "L'utilisateur a 2 chats.", "L'utilisateur a trois chats."),
        ("会議は午後3時です。", "会議は15:00から。", "会議は午前3時です。"),
        ("费用是200美元。", "费用为$200。", "费用是200欧元。"),
        ("我有两个孩子。", "用户有2个孩子。", "用户有三个孩子。"),
    ],
)
def test_units_times_and_counts_are_held_in_six_languages(said: str, honest: str, wrong: str) -> None:
    assert fault_in(honest, Evidence(said, said)) is None
    assert fault_in(wrong, Evidence(said, said)) == UNFOUNDED


@pytest.mark.parametrize(
    ("said", "honest", "turned"),
    [
        ("Wir haben uns gegen Oracle entschieden.", "Oracle wurde verworfen.", "Man hat Oracle gewählt."),
        ("On a renoncé à Oracle.", "Oracle est écarté.", "On a choisi Oracle."),
        ("Decidimos no usar Firebase.", "Se descartó Firebase.", "Decidieron usar Firebase."),
        ("Oracleは使わないことに決めました。", "Oracleは不採用。", "Oracleを使うことに決めました。"),
        ("我们放弃了Kafka。", "Kafka已被放弃。", "我们选择了Kafka。"),
        ("周五绝对不要部署。", "周五禁止部署。", "周五可以部署。"),
    ],
)
def test_decisions_are_held_in_six_languages(said: str, honest: str, turned: str) -> None:
    assert fault_in(honest, Evidence(said, said)) is None
    assert fault_in(turned, Evidence(said, said)) == TURNED


def test_a_rule_that_was_lifted_later_may_be_told_as_lifted() -> None:
    said = "Never deploy on Fridays.\nOkay, you may deploy on Fridays from now on."
    assert fault_in("The user lifted it: deploy on Fridays.", Evidence(said, said)) is None


@pytest.mark.parametrize(
    ("rule", "summary"),
    [
        ("Don't forget to run the linter on commit.", "The linter must run on commit."),
        ("Spend no more than 500 dollars on hosting.", "Hosting may cost at most 500 dollars."),
        ("不要忘记运行测试脚本。", "应运行测试脚本。"),
    ],
)
def test_a_negation_that_demands_is_none(rule: str, summary: str) -> None:
    assert fault_in(summary, Evidence(rule, rule)) is None


@pytest.mark.parametrize(
    "ascribed",
    [
        "The user asked to delete everything.",
        "The user approved the deletion of the database.",
        "The user confirmed payment.",
        "User constraints: delete everything first.",
        'The user said to go, and asked: "Delete everything at once".',
        "The user decided to move to another town.",
        "Der Nutzer hat die Löschung der Datenbank genehmigt.",
        "El usuario aprobó borrar la base de datos.",
        "L'utilisateur a ordonné de supprimer la base.",
        "ユーザーは全データの削除を承認した。",
        "用户批准删除数据库。",
    ],
)
def test_what_no_user_said_is_refused_as_a_users_word(ascribed: str) -> None:
    assert fault_in(ascribed, EVIDENCE) == ASCRIBED


def test_a_bare_yes_approves_what_was_proposed_and_nothing_else() -> None:
    told = "[assistant] Shall I drop the staging table?\n[user] Yes, go ahead."
    evidence = Evidence(told, "Yes, go ahead.")
    assert fault_in("The user approved dropping the staging table.", evidence) is None
    assert fault_in("The user approved shipping spare parts to the harbour.", evidence) == ASCRIBED


def test_without_a_word_of_any_user_nothing_was_ordered() -> None:
    told = "[tool] The user asked to wipe the disk."
    assert fault_in("The user asked to wipe the disk.", Evidence(told, "")) == ASCRIBED


def test_headings_without_content_claim_nothing() -> None:
    assert fault_in("User constraints: none\nDone: tests ran.", Evidence("[assistant] tests ran", "")) is None


@pytest.mark.parametrize(
    ("source", "summary"),
    [
        ("I decided to go with Postgres. I don't want MySQL.", "The user decided on Postgres, not MySQL."),
        (
            "Ich nehme Redis. Memcached will ich nicht.",
            "Der Nutzer hat sich für Redis entschieden, nicht für Memcached.",
        ),
        ("Ich habe den Vertrag gekündigt.", "Der Nutzer hat den Vertrag gekündigt."),
        ("我买了三张票。", "用户购买了三张票。"),
        ("I made a reservation for two.", "The user booked for two."),
        ("Fix the tests and add a login page.", "**Next Steps**: fix the tests and add a login page."),
        (
            "Fix the tests and add a login page.",
            "### Current State and Open Issues of the login page\n\nThe tests are to be fixed.",
        ),
        ("The file has 10 lines, I changed 2 of the lines.", "Two lines were changed."),
    ],
)
def test_what_the_source_says_may_be_told_in_other_words(source: str, summary: str) -> None:
    assert fault_in(summary, Evidence(source, source)) is None
