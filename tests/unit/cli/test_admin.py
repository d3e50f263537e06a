"""Where the session verbs find the admin token."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.cli.client import admin_token
from proxy.cli.terminal import CommandError
from proxy.environment import ADMIN_TOKEN_FILE


def test_the_environment_comes_first_then_its_file_then_the_data_directory(tmp_path: Path) -> None:
    (tmp_path / ADMIN_TOKEN_FILE).write_text("kept\n")
    (tmp_path / "other").write_text("in-a-file\n")
    environment = {"UNABRIDGED_DATA_DIR": str(tmp_path)}
    assert admin_token(environment) == "kept"
    environment["UNABRIDGED_ADMIN_TOKEN_FILE"] = str(tmp_path / "other")
    assert admin_token(environment) == "in-a-file"
    environment["UNABRIDGED_ADMIN_TOKEN"] = "given"
    assert admin_token(environment) == "given"


@pytest.mark.parametrize("token", [b"", b"\x85\xff", "h\u00e9".encode(), b"two words", b"two\nlines"])
def test_what_no_header_can_carry_is_no_token(tmp_path: Path, token: bytes) -> None:
    file = tmp_path / "token"
    file.write_bytes(token)
    with pytest.raises(CommandError, match=f"no admin token: {file} must be visible ASCII"):
        admin_token({"UNABRIDGED_ADMIN_TOKEN_FILE": str(file)})
    if token.isascii() and token:
        with pytest.raises(CommandError, match="no admin token: UNABRIDGED_ADMIN_TOKEN must be"):
            admin_token({"UNABRIDGED_ADMIN_TOKEN": token.decode()})


def test_without_a_token_the_complaint_says_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="set UNABRIDGED_ADMIN_TOKEN"):
        admin_token({"UNABRIDGED_DATA_DIR": str(tmp_path)})
