"""What is secret is blotted out, and nothing else."""

import pytest

from proxy.core.memory.redaction import BLOT, redacted
from tests.support.timing import growth

PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nIBAAKC\n-----END RSA PRIVATE KEY-----"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dBjftJeZ4CVP-mB92K27uhbUJU1p1r"


@pytest.mark.parametrize(
    "secret",
    [
        "sk-proj-4f9Aa81kXy72LmQ0",
        "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
        "github_pat_11ABCDEFG0abcdefghij_klmnop",
        "AKIAIOSFODNN7EXAMPLE",
        "xoxb-123456789012-abcdefGHIJ",
        "glpat-abc123DEF456ghi7",
        JWT,
        PEM,
        "4111 1111 1111 1111",
        "5500-0000-0000-0004",
        "378282246310005",
        "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY1234",
    ],
)
def test_a_secret_is_known_by_its_shape(secret: str) -> None:
    assert redacted(f"Here it is, {secret} for the crane.") == f"Here it is, {BLOT} for the crane."


@pytest.mark.parametrize(
    "text",
    [
        "password: {}",
        "The password is {}",
        "my Wi-Fi password is now {}",
        'set DB_PASSWORD="{}"',
        '{{"api_key": "{}"}}',
        "API key = {}",
        "AWS_SECRET_ACCESS_KEY={}",
        "PIN: {}",
        "the door code is {}",
        "Das Passwort lautet {}",
        "mein Kennwort ist {}",
        "la contraseña es {}",
        "le mot de passe est {}",
        "パスワードは{}",
        "密码是{}",
        "密碼:{}",
        "postgres://crane:{}@db.example/harbour",
    ],
)
@pytest.mark.parametrize("secret", ["tide-4711", "swordfish", "Hunter2!"])
def test_a_secret_is_known_by_what_it_is_called(text: str, secret: str) -> None:
    assert secret not in redacted(text.format(secret))
    assert BLOT in redacted(text.format(secret))


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("My wifi password: {}. I live in Oslo.", "My wifi password: [redacted]. I live in Oslo."),
        ("password: {}\nuser: ana", "password: [redacted]\nuser: ana"),
        ('The passphrase is "{}", I said.', 'The passphrase is "[redacted]", I said.'),
        ("The passphrase for the vault is “{}”.", "The passphrase for the vault is “[redacted]”."),
        ('{{"api_key": "{}", "port": 22}}', '{{"api_key": "[redacted]", "port": 22}}'),
        ("The password for the server: {}", "The password for the server: [redacted]"),
        ("DB_PASS={}", "DB_PASS=[redacted]"),
        ("Das Passwort ist „{}“.", "Das Passwort ist „[redacted]“."),
    ],
)
@pytest.mark.parametrize("secret", ["correct horse battery staple", "tide.4711", "Don't tell"])
def test_a_secret_of_several_words_is_blotted_out_whole(text: str, left: str, secret: str) -> None:
    assert redacted(text.format(secret)) == left.format()


@pytest.mark.parametrize(
    "text",
    [
        "The PIN for my card is {}",
        "My password's {}",
        "My password\u2019s {}",
        "The password I use is {}",
        "password {} for the server",
        "I set the PIN to {}",
        "DB_PASS={}",
        "my AWS secret is {}",
        "Mein PIN-Code ist {}",
        "Das Passwort für mein WLAN ist {}",
        "Ich habe die PIN auf {} gesetzt",
        "La contraseña de mi correo es {}",
        "Cambié la contraseña a {}",
        "Le mot de passe de mon wifi est {}",
        "銀行カードの暗証番号は{}",
        "服务器的密码是{}",
    ],
)
@pytest.mark.parametrize("secret", ["4711", "hunter2", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"])
def test_a_secret_need_not_stand_right_behind_its_name(text: str, secret: str) -> None:
    assert redacted(text.format(secret)) == text.format(BLOT)


@pytest.mark.parametrize(
    ("before", "piece", "times"),
    [
        ("", "api-", 50_000),
        ("pin for ", "a ", 200_000),
        ("password: ", '"', 200_000),
        ("pin is ", " ", 200_000),
        ("pin: ", " ", 20_000),
    ],
)
def test_time_grows_as_the_text_does(before: str, piece: str, times: int) -> None:
    assert growth(lambda each: lambda: redacted(before + each * piece), times // 4, times) < 8


@pytest.mark.parametrize(
    "text",
    [
        "I forgot my password.",
        "The password field is broken.",
        "The password for the portal is too short.",
        "The password's length is 12.",
        "I changed my password on 2026-01-01.",
        "There is a pin on the map, and pin 13 of the board is high.",
        "The secret is patience.",
        "My secret: never stop.",
        "The secret of the harbour is its 12 cranes.",
        "The number of tokens in the prompt is 4711, cut the tokens to 4000.",
        "The token budget for the answer is 4000.",
        "Passwords are hashed with sha256.",
        "Ich habe mein Passwort vergessen.",
        "El campo de la contraseña está roto.",
        "J'ai oublié mon mot de passe.",
        "Ana lives in Oslo and has been there since 2019-05-03.",
        "The order 4111 1111 1111 1112 is late.",
        "Call +47 22 12 34 56 before noon.",
        "The commit 1f3870be274f6c49b3e31a0c6728957f1f3870be broke it.",
        "See https://example.com/docs/getting-started/authentication#tokens.",
        "The id is 550e8400-e29b-41d4-a716-446655440000.",
        "The task-4711 ran on node-17-eu-west-1.",
        "It lies in Users/Ana/Projects/2024/Harbour/Cranes/Inspection/Notes.",
        "We count tokens before each request.",
        "The key point is that the budget is 500.",
        "proxy/core/conversation/messages.py holds what_makes_two_messages_the_same.",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redacted(text) == text
