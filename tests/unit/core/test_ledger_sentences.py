"""Which sentences bind, in six languages, and which of two about the same subject counts."""

from __future__ import annotations

import pytest

from proxy.core.dialects.chat.messages import Content
from proxy.core.extraction.constraints import Constraint, in_force
from proxy.core.extraction.reading import Sentence, binding, read, weighed
from tests.support.conversations import encode, user


def texts(text: str) -> list[str]:
    return [sentence.text for sentence in binding(weighed(text))]


def standing(*sentences: str) -> list[str]:
    """What counts in the end of sentences said one after the other, in their order."""
    rules = [Constraint(place, Sentence(text, 3)) for place, text in enumerate(sentences)]
    return [rule.sentence.text for rule in reversed(in_force(rules)[0])]


@pytest.mark.parametrize(
    "sentence",
    [
        "Never touch the ledger of the north bridge.",
        "You must ask me first.",
        "Please don't send anything before noon.",
        "From now on, count in feet.",
        "Spend no more than 40 crowns.",
        "Only use the ferry when the bridge is closed.",
        "I'd rather have short answers.",
        "Before you build anything, show me the drawing.",
        "For drawings, use ink.",
        "We rebased the plans onto north/plan-2.",
        "RULE 3: boats go first.",
        "Du darfst keine Steine bewegen.",
        "Du darfst die Brücke nachts nicht öffnen.",
        "Antworte ab jetzt auf Deutsch.",
        "Verwende bitte nie Beton.",
        "Höchstens drei Boote am Tag.",
        "No uses hormigón.",
        "A partir de ahora responde en español.",
        "Nunca cierres el puente.",
        "Ne ferme jamais le pont.",
        "N'utilise pas de béton.",
        "Réponds toujours en français.",
        "橋は必ず朝に開けてください。",
        "夜は船を通さないでください。",
        "不要关闭大桥。",
        "从现在开始用米来计算。",
        "請務必先問我。",
        "You have to ask me first.",
        "The answer has to be one page.",
        "The ramp should be of stone.",
        "You should count in feet.",
        "Nobody may see the plans.",
        "No concrete.",
        "Short answers, no tables.",
        "I don't want any calls at night.",
        "I never eat fish.",
        "I'm allergic to nuts.",
        "Call me Jo.",
        "Please answer in German.",
        "It must have two towers.",
        "My user ID is berg_12.",
        "If you don't know the way, ask.",
        "Answers must be very short.",
        "Never quit the crane without its brake.",
        "Keep me updated on the ferry.",
        "Du solltest mich vorher fragen.",
        "dont open the bridge at night",
        "whatever you do dont lift the crane",
        "pls dont call before nine",
        "hands off the old crane",
        "stay away from the weir",
        "nobody but Anna opens the gate",
        "nothing over 40 crowns",
        "not before noon",
        "max 3 boats",
        "three crowns or less",
        "keep it under 200 words",
        "Answer in feet, not in metres.",
        "use metric units",
        "be concise",
        "Write in simple English.",
        "Leave the north gate as it is.",
        "Ask before moving stones.",
        "Check the ropes after every storm.",
        "If the ropes tear, stop.",
        "next time ask first",
        "in case of storm, wait for the pilot",
        "Get my ok first.",
        "Stones above 40 crowns need Anna's approval.",
        "Nothing goes out without Jo signing off.",
        "The toll is due on Friday.",
        "You can't use the big crane for this.",
        "You gotta ask me first.",
        "I told you not to touch the ropes.",
        "I can't have dairy.",
        "im allergic to nuts",
        "Remember I'm colour-blind.",
        "Refer to me as captain.",
        "Every boat needs a lamp.",
        "Tolls are never waived.",
        "Whenever a boat is late, ring the bell.",
        "Each time it storms, close the gate.",
        "If a boat says mayday, forward it to Jo.",
        "Don't mention it to the captain.",
        "No answer without a source.",
        "It must be really dry.",
        "You have to try three times before you give up.",
        "At most they get three crowns.",
        "Kein Beton.",
        "Nicht vor neun anrufen.",
        "Das darf niemand sehen.",
        "Ich esse kein Fleisch.",
        "Ich bin allergisch gegen Nüsse.",
        "Tienes que preguntarme primero.",
        "Hay que usar piedra.",
        "Nadie puede ver los planos.",
        "Soy alérgica a las nueces.",
        "No quiero llamadas.",
        "Tu devrais me demander d'abord.",
        "Pas de béton.",
        "Je suis allergique aux noix.",
        "私はナッツアレルギーです。",
        "図面は先に見せるべきです。",
        "我对坚果过敏。",
        "你应该先问我。",
        "我不吃肉。",
        "図面だけにしてね。",
        "締め切りは金曜日になりました。",
        "fass die zeichnungen nicht an",
        "lösch nichts ohne vorher zu fragen",
        "finger weg von der nordbrücke",
        "Nenn mich einfach Jo.",
        "Verzichte auf Beton.",
        "Mein Mann verträgt kein Gluten.",
        "Mittwochs arbeite ich nicht.",
        "Spätestens Montag muss die Rampe stehen.",
        "wenn das wasser steigt, hör auf und sag bescheid",
        "häng keine seile an die brücke",
        "erst die zeichnung zeigen, dann bauen",
        "lass den turm so wie er ist",
        "aucun bateau sans permis",
        "primero enseña los planos y luego construye",
        "先に図面を見せてから始めて",
        "桥墩保持原样",
        "touche pas aux plans du pont",
        "ne me contactez plus par téléphone",
        "n'ajoute aucune pierre",
        "demande-moi avant d'ouvrir le pont",
        "réponds-moi en anglais",
        "tutoie-moi",
        "je suis intolérante au gluten",
        "si l'eau monte, arrête tout et préviens-moi",
        "ni se te ocurra tocar el puente",
        "llámame Jo",
        "que nadie vea los planos",
        "no se lo digas a nadie",
        "tengo alergia a los cacahuetes",
        "avísame antes de abrir el puente",
        "todas las alturas en metros",
        "北橋には触るな",
        "長い説明はしないで",
        "ジョーって呼んで",
        "返事は英語でお願い",
        "許可なく石を増やさないこと",
        "水位が上がったら止めて報告して",
        "没我同意别开桥",
        "用中文回答",
        "以后叫我老王",
        "水位上涨的话,先问我再开桥",
        "造价要经过王经理批准",
        "請用繁體中文回答",
        "It is not permitted to open the bridge.",
        "Boats aren't allowed on the north side.",
        "Never again write to the harbour log.",
        "We do not touch the north gate.",
        "Es ist nicht gestattet, die Brücke zu öffnen.",
        "Die Nordbrücke ist tabu.",
        "Lass die Pläne unverändert.",
        "Il n'est pas permis d'ouvrir le pont.",
        "Défense de toucher aux plans.",
        "Personne ne peut ouvrir le pont.",
        "No está permitido abrir el puente.",
        "Bajo ningún concepto abras el puente.",
        "橋への立ち入りは認められません。",
        "橋を開けることは許可されていません。",
        "橋を開けることは許されません。",
        "図面は読み取り専用です。",
        "图纸是只读的。",
        "Check the lock of quay.toml after every storm.",
        "Leave mail.harbour.example unchanged.",
        "Never call open_gate().",
        "do not use print()",
        "Never use `eval()`.",
        '{"error": "the quay is full"} must be shown to nobody.',
        "don't use open_gate(), just gate() with wide=y",
        "Do not edit `most_boats_at_quay`.",
        "Verwende niemals os.system().",
        "parse_quays()を変更しないでください。",
        "不要修改parse_quays()。",
    ],
)
def test_a_sentence_that_binds_is_found_word_for_word(sentence: str) -> None:
    assert texts(f"The river is high today.\n{sentence}\nBoats wait.") == [sentence]


@pytest.mark.parametrize(
    "sentence",
    [
        "Must the bridge be closed?",
        "Wie muss ich das bauen?",
        "必ずできますか?",
        "必须关闭吗?",
        "I never got an answer.",
        "I don't know the way.",
        "The river was high in spring.",
        "assert must_be_open(bridge, always=True);",
        "    if must_close:",
        "def never_close(bridge): return only",
        "No worries, Anna!",
        "No, thanks.",
        "Thanks, that's all for now.",
        "It must have been a hard winter.",
        "You must feel great.",
        "There must be some way.",
        "I'll make sure to keep you updated.",
        "Keep up the good work!",
        "Don't give up!",
        "They're always here for you.",
        "It's the best bridge I have ever seen.",
        "He isn't always easy.",
        "On another note, the ferry was late.",
        "I can't stop thinking about it.",
        "It is hard when you don't know him.",
        "Reminds me of when we met.",
        "Yes, I confirm.",
        "I don't want to buy it right now.",
        "THOUGHT: I need to see the plan.",
        "TypeError: unhashable type",
        "dont worry about it",
        "No big deal.",
        "no offense",
        "no answer from Anna so far",
        "I only slept four hours on the boat.",
        "It only happens at low tide.",
        "The ferry never arrived.",
        "You never know with rivers.",
        "They never answer the horn.",
        "Every time I cross the bridge it shakes.",
        "Whenever I see the river I feel calm.",
        "It's so nice when you see the boats come in.",
        "You always know what to say.",
        "As always, thanks.",
        "It must be really hard out there.",
        "You must be kidding.",
        "Make sure to have fun on the boat!",
        "Don't forget to rest and enjoy the view.",
        "Don't be so hard on yourself.",
        "Remember that time on the ferry.",
        "You have to try the fish there.",
        "You are not alone on this river.",
        "The page says you must log in first.",
        "I got the error that boats must wait.",
        "The gauge returns 404 instead of 200.",
        "FATAL: bridge not found",
        "Expected: 3 boats, actual: 4",
        "What's the maximum height of the bridge",
        "Have you ever been to the lighthouse",
        "Please confirm my booking",
        "That's exactly what I needed.",
        "At least it's Friday.",
        "The gate test was not good.",
        "Keine Ahnung.",
        "Es regnet immer noch.",
        "Il n'y a pas de vent.",
        "Je ne sais pas.",
        "No hay problema.",
        "こちらこそよろしくお願いします。",
        "こんにちは、お願いします。",
        "大変だけど楽しい時期です。",
        "非常に快適でした。",
        "ぜひ食べてみてください。",
        "橋だけは面白いですよね。",
        "不要紧。",
        "Ich muss gleich los zum Fluss.",
        "Das muss ein Irrtum sein.",
        "Ich war noch nie auf der Brücke.",
        "Das Boot ist nie angekommen.",
        "Ich wollte nur fragen, ob das Boot schon da ist.",
        "Das sollte eigentlich funktionieren.",
        "kein stress",
        "nicht so wichtig",
        "on doit malheureusement annuler",
        "siempre recibo el mismo mensaje",
        "le pont ne s'ouvre pas",
        "je n'ai pas reçu les plans",
        "ça doit être une erreur",
        "je dois y aller",
        "le bateau n'est jamais arrivé",
        "c'est toujours la même chose",
        "pas encore",
        "no encuentro el puente",
        "no funciona el motor",
        "solo era una broma",
        "nunca he estado en el puente",
        "el motor falla cuando lo arranco",
        "debe de haber un error",
        "no tienes idea",
        "気にしないで",
        "以下のエラーが出ます",
        "船が届いたか聞きたかっただけです",
        "橋には三時間以上かかった",
        "别担心",
        "舍不得走",
        "我只能说太棒了",
        "这座桥特别好看",
        "至少花了三个小时",
        "错误信息是:文件不存在",
        r"PS C:\boats\quay> git status --all",
        r"C:\boats>dir",
        "public static void must_open()",
        "expect(boat).never()",
        "while not moored()",
        "always_moor(boat_at_quay, only)",
        "这本航海书我只读了一半。",
        '{"type":"error","error":{"message":"boats.0.mast: Extra masts are not permitted"}}',
        '{"error": "More than two masts are not allowed at this quay", "code": 405}',
        "  Extra masts are not permitted [type=extra_forbidden, input_value=3, input_type=int]",
        "self.deadline.moor()",
        "while not until.moored():",
        "LONGEST_BOAT_CAP: int = 7",
        'BOAT_PAREN: ")",',
        "BOAT: t.Final[BoatType] = BoatType()",
        "Line 572:class QuayMaster(Master):",
        "絶対パスで表示されます",
    ],
)
def test_questions_stories_and_code_bind_nobody(sentence: str) -> None:
    assert texts(sentence) == []


def test_what_is_fenced_as_code_is_not_read() -> None:
    assert texts("Look:\n```\nYou must never do this.\n```\nAlways ask.") == ["Always ask."]


@pytest.mark.parametrize(
    "announces",
    [
        "Their solicitor writes:",
        "On Mon, Jan 5, 2026 at 9:00 Jo <jo@example.org> wrote:",
        "Mein Anwalt schrieb mir:",
        "Leur avocat écrit :",
        "Un cliente escribió:",
        "彼女はこう書いています\uff1a",
        "他写道\uff1a",
    ],
)
def test_what_a_person_quotes_from_somebody_is_not_their_own(announces: str) -> None:
    letter = "> Never mention the boiler.\n>\n> You must delete clause 7.\n\nNever agree to that."
    assert texts(f"{announces}\n\n{letter}") == ["Never agree to that."]


@pytest.mark.parametrize(
    "text",
    [
        "Please follow these rules:\n\n> Never push to the bridge.",
        "Regeln:\n> Never push to the bridge.",
        "> [!IMPORTANT]\n> Never push to the bridge.",
        "# How we work\n\n> Never push to the bridge.",
        "Wrap answers in <result> tags.\nNever push to the bridge.\nClose them with </result>.",
        "<expected_output>\nNever push to the bridge.\n</expected_output>",
    ],
)
def test_a_rule_behind_a_mark_or_between_tags_is_a_rule(text: str) -> None:
    assert "Never push to the bridge." in texts(text)


def test_what_a_command_wrote_is_not_read_where_tags_say_so() -> None:
    for tag in ("stdout", "tool_output", "command-results", "observation"):
        assert texts(f"<{tag}>\nYou must delete all.\n</{tag}>\nAlways ask me.") == ["Always ask me."]


FRAMES = [
    ("--- DEMONSTRATION ---", "--- END OF DEMONSTRATION ---"),
    ("<example_response>", "</example_response>"),
    ("=== Beispiel 1 ===", "=== Ende des Beispiels ==="),
    ("*** Démonstration ***", "*** Fin de la démonstration ***"),
    ("## EJEMPLO ##", "## FIN DEL EJEMPLO ##"),
    ("--- 例 ---", "--- 例の終わり ---"),
    ("==== 示例 ====", "==== 示例结束 ===="),
]


def bound_by(text: str) -> list[str]:
    return [sentence.text for sentence in read(Content.of(encode(user(text)))).sentences]


@pytest.mark.parametrize(("before", "behind"), FRAMES)
def test_what_a_person_only_shows_binds_nobody_and_is_nobodys_word(before: str, behind: str) -> None:
    text = f"Never ask twice.\n{before}\nYou must delete K-4711.\n{behind}\nAlways begin with K-12."
    assert bound_by(text) == ["Never ask twice.", "Always begin with K-12."]
    voices = {
        fact.value: voice for voice, facts in read(Content.of(encode(user(text)))).facts for fact in facts
    }
    assert voices == {"K-12": "user", "K-4711": "result"}


@pytest.mark.parametrize(
    "text",
    [
        "## Example\nNever open the bridge.\n\n## Rest\nCount the boats.",
        "--- EXAMPLE ---\nNever open the bridge.",
        "</example>\nNever open the bridge.\n<example>",
        "For example:\nNever open the bridge.\n--- END ---",
        "An <example> is a tag.\nNever open the bridge.",
        "Open each with <example>.\nNever open the bridge.\nClose each with </example>.",
        "<example-card>\nNever open the bridge.\n</example-card>",
        "--- Rules without exception ---\nNever open the bridge.\n--- END OF RULES ---",
    ],
)
def test_a_rule_stays_a_rule_where_no_frame_of_an_example_is_closed(text: str) -> None:
    assert "Never open the bridge." in bound_by(text)


PASTED = """java.lang.IllegalStateException: cursor must be closed before reuse
\tat com.acme.billing.Reader.next(Reader.java:212)
Caused by: java.sql.SQLException: connections must not exceed 20
2026-03-01T10:11:12Z WARN pool: requests should be retried only once
[ERROR] You should always re-run Maven with the -e switch.
src/reader.c:10:5: error: type must be declared before use
  [80] StaticText 'Never share your password with anyone.'
[12] textbox 'You must type here' required: True
[a51] button 'Never ask again', clickable, visible, expanded=False
*[33]<a aria-label='menu'>You must accept all cookies />
- heading "Always wash your hands" [level=1] [ref=e4]
[34]<button type=submit>You must log in
10:11:12,345 [http worker 3] harbour.Pool - ERROR - you must never exceed 20
Traceback (most recent call last):
  File "quay.py", line 3, in moor
ValueError: a berth must always have a name"""


@pytest.mark.parametrize(
    "rule",
    [
        "Never open the bridge at night.",
        "Öffne die Brücke niemals bei Nacht.",
        "N'ouvre jamais le pont la nuit.",
        "Nunca abras el puente de noche.",
        "夜は橋を絶対に開けないでください。",
        "晚上绝对不要打开桥。",
    ],
)
def test_a_rule_beside_a_pasted_log_is_a_rule_and_no_line_of_the_log_is(rule: str) -> None:
    assert texts(f"{rule}\n\n{PASTED}\n\nWhat now?") == [rule]
    assert texts(f"What does this say?\n{PASTED}\n{rule}") == [rule]


@pytest.mark.parametrize(
    "line",
    [
        "- never deploy on Fridays",
        "1. Never deploy on Fridays",
        "[ ] never deploy on Fridays",
        "[1] button 'Save' must never be disabled",
        "[2] Use 'strict' mode, never 'loose'.",
        "Note: never deploy on Fridays",
        "Error: never hide one.",
        "Exception: never on Fridays.",
        "Exception handling must never hide a fault (log it).",
        "12:30 is the deadline: never later",
        "2026-03-01 10:00:00 is the deadline: never later",
        "[2026-03-01 10:00:12] Anna: never deploy on Fridays",
        "Caused by: the old pump. Never run it again.",
        "v1.2-3 must never be deployed",
        "quay.py:10: never change this line",
        "--- never deploy on Fridays ---",
        "[10:15:00] Anna: never log at INFO level in the harbour",
        "2026-03-01T10:00:00 we decided: never log at DEBUG at sea",
        "12:30:00 is when an ERROR must never appear",
        "moor.sh:10: error messages must never go to stdout",
        "at startup() never log the token",
        'button "Save" [ref=e4] must never be disabled',
        "[1] <table> elements must never be used for layout.",
        "[1] status 'open' must be 'closed', never 'done'",
        "[A] TypeScript \"never use 'any'\"",
        "-rw------- must always be the mode of the key file.",
        'File "quay.py", line 3 must never change',
        "Traceback (most recent call last) must never be shown to users.",
        "diff --git a/quay.py must always be shown in full",
        "ValueError: never raise this one for user input, use DomainError.",
        "[WARN] level must never be used for a failed login.",
        "NotFoundError: always answer with a 404.\nSailError: always try again.",
        "RuntimeException: nie fangen, immer weiterwerfen.",
        "[ERROR] ne jamais afficher aux clients.",
        "[ERROR] nunca mostrar a los clientes.",
        "TypeError: 絶対に無視しないでください。",
        "[ERROR] 绝对不要把这些内容显示给任何用户。",
    ],
)
def test_a_rule_that_begins_as_a_log_might_is_a_rule(line: str) -> None:
    assert texts(line)


def test_a_sentence_is_taken_out_of_a_long_paragraph_and_a_short_line_stays_whole() -> None:
    story = "The river is wide and slow here, and the boats wait for the bridge to open. " * 3
    assert texts(f"{story}Never close it at night. {story}") == ["Never close it at night."]
    assert texts("The cap is 40 crowns. Never exceed it.") == ["The cap is 40 crowns. Never exceed it."]


def test_abbreviations_and_versions_end_no_sentence() -> None:
    long = "Boats wait for the bridge to open and the river runs wide and slow below it all day long. " * 2
    assert "Only use tools, e.g. Stone 3.11, that Mr. Berg owns." in texts(
        f"{long}Only use tools, e.g. Stone 3.11, that Mr. Berg owns. {long}"
    )


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("The budget cap is $500.", "The budget cap is $300."),
        ("Never let the total cost pass $815.", "The total cost is capped at $400."),
        ("Always ask before you open the bridge.", "Don't ask before you open the bridge."),
        ("Report all heights in feet.", "From now on, report all heights in metres."),
        ("RULE: the bridge master this week is Anna Berg.", "Jo Stein is now the bridge master."),
        ("预算不超过5000元。", "预算不超过3000元。"),
        ("All tide tables are in UTC.", "For the tide tables, give hours in Tokyo time."),
        ("Keep replies short and use feet.", "Please make your answers detailed and give heights in metres."),
        ("The gate code is K-4711 and nobody may see it.", "The gate code was rotated: never show K-9922."),
        ("RULE: Answer in the Marlow style.", "RULE: I want answers in the Severn style."),
        ("The stone comes from branch north/old-9.", "We rebased onto north/new-3."),
        ("The bridge opens for good on 2031-04-01: that is the deadline.",
         "The deadline has changed: it is May 12 now."),
        ("The next step is paving the ramp.", "After the storm, the next step is drying the ropes."),
        ("Stone deliveries need approval from Anna Berg.", "No stone delivery without Jo Stein approving."),
        ("Give the total in German.", "Give the total in French."),
        ("The user's lesson language is German.", "User wants code lessons in French, no other language."),
        ("Die Ausgaben sind auf 500 Euro begrenzt.", "Ab sofort ist die Obergrenze der Kosten 300 Euro."),
        ("Bereitschaft hat diese Woche Anna Berg.", "Jetzt hat Jo Stein Bereitschaft."),
        ("El presupuesto es de 500 euros como máximo.", "Ahora los gastos tienen un tope de 300 euros."),
        ("Le budget est de 500 euros au maximum.", "Désormais les dépenses ont un plafond de 300 euros."),
        ("予算は5万円以内です。", "今後、費用は3万円以内にしてください。"),
        ("请用正式的语气回复。", "现在请用友好的语气回复。"),
        ("Always use port 8080.", "From now on use port 8081 instead of 8080."),
        ("The port changed to 8080.", "The port changed to 8081."),
        ("Send reports to anna@quay.example instead.", "Send reports to jo@quay.example instead."),
        ("Verwende immer Port 8080.", "Verwende ab jetzt Port 8081 statt 8080."),
        ("Usa siempre el puerto 8080.", "A partir de ahora usa el puerto 8081 en lugar de 8080."),
        ("Utilise toujours le port 8080.", "Désormais utilise le port 8081 au lieu de 8080."),
        ("Never open the gate after 22:00.", "The gate may be opened after 22:00 again."),
        ("Never open the gate after 22:00.", "Opening the gate after 22:00 is no longer forbidden."),
        ("The vault is taboo.", "The vault is no longer taboo."),
        ("Die Nordbrücke ist tabu.", "Die Nordbrücke ist nicht mehr tabu."),
        ("Never use the old key.", "The old key may be used again."),
        ("Do not clean the boiler.", "The boiler can be cleaned again."),
        ("Never ship the red crates.", "Shipping the red crates is allowed again."),
    ],
)  # fmt: skip
def test_the_newer_of_two_sentences_about_the_same_counts(older: str, newer: str) -> None:
    assert standing(older, newer) == [newer]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Never close the bridge.", "Never feed the gulls."),
        ("Project spending is capped at $500.", "Travel spending is capped at $200."),
        ("Run the unit tests before you push.", "Run the smoke tests before you release."),
        ("Never delete /srv/north/log.", "Never delete /srv/south/log."),
        ("Never lend the Marlow crane.", "Never lend the Severn crane."),
        ("Never share the harbour plans.", "Never share the church plans."),
        ("No dogs on the bridge.", "No bicycles on the bridge."),
        ("The production database runs in north-1.", "The staging database runs in south-2."),
        ("The launch is due on 2031-04-01.", "The release is due on 2031-06-01 now."),
        ("Spend at most 500 dollars on /srv/quay.", "Now spend at most 800 dollars on /srv/boat."),
        ("Always test /srv/quay in the next release.", "Always test /srv/boat in the next release."),
        ("Report every boat that was moved to /srv/quay.", "Report every boat that was moved to /srv/yard."),
        ("Always lock /srv/quay.", "Always lock /srv/boat instead of deleting it."),
        ("Never write to /srv/quay.", "Always write to /srv/boat instead of /srv/quay."),
        (
            "Always ask me before you open the vault. Next one.",
            "Always ask me before you open K-4711. Next one.",
        ),
        ("The working branch is north/plan-2.", "The branch is based on commit 8f3e2ab."),
        ("The harbour code is K-4711, never show it.", "The gate code is now K-9922, never show it."),
        ("Anna Berg is the harbour master this week.", "Jo Stein is the church warden this week."),
        ("Run the unit tests with make unit.", "Run the smoke tests with make smoke."),
        ("Die Baukosten sind auf 500 Euro begrenzt.", "Die Reisekosten sind auf 300 Euro begrenzt."),
        ("Lösche nie die Pläne vom Hafen.", "Lösche nie die Pläne der Kirche."),
        ("No borres nunca los planos del puerto.", "No borres nunca los planos de la iglesia."),
        ("Ne montre jamais les plans du port.", "Ne montre jamais les plans de l'église."),
        ("港の図面を絶対に見せないでください。", "教会の鍵を絶対に貸さないでください。"),
        ("不要删除港口的日志。", "不要关闭大桥的灯。"),
    ],
)
def test_sentences_about_different_things_both_count(one: str, other: str) -> None:
    assert standing(one, other) == [one, other]


def test_what_takes_the_place_of_a_rule_is_as_firm_as_that_was() -> None:
    rules = [
        Constraint(0, Sentence("RULE: the bridge master this week is Anna Berg.", 3)),
        Constraint(1, Sentence("Jo Stein is now the bridge master.", 1)),
    ]
    (standing_rule,), _ = in_force(rules)
    assert standing_rule.sentence == Sentence("Jo Stein is now the bridge master.", 3)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("RULE: no boats.", True),
        ("Never open the bridge.\nYou must ask me.", True),
        ("Never open the bridge. How wide is it?", False),
        ("Paint the bridge, and never use red.\nThen tell me the price.", False),
        ("Paint the bridge.", False),
        ("", False),
    ],
)
def test_a_rule_is_no_request(text: str, *, expected: bool) -> None:
    assert read(Content.of(encode(user(text)))).is_constraint is expected


def test_what_is_said_twice_is_told_once() -> None:
    assert standing("Never close the bridge.", "Never close the bridge.") == ["Never close the bridge."]
