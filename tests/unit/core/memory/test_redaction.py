"""What is secret is blotted out, and nothing else."""

import pytest

from proxy.core.memory.redaction import BLOT, redacted

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
    "text",
    [
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
