"""Where the session verbs find the admin token."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.cli.client import DEFAULT_SERVER, admin_token
from proxy.cli.terminal import CommandError
from proxy.environment import ADMIN_TOKEN_FILE
from proxy.errors import OperatorError, SettingsError


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own settings file, which is not there yet; nothing is set but the data directory."""
    for name in ("UNABRIDGED_ADMIN_TOKEN", "UNABRIDGED_ADMIN_TOKEN_FILE", "UNABRIDGED_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("UNABRIDGED_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "unabridged").mkdir()
    return tmp_path / "unabridged" / "config.toml"


def test_a_variable_comes_first_then_the_settings_file_then_the_data_directory(
    tmp_path: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ADMIN_TOKEN_FILE).write_text("kept\n")
    assert admin_token(DEFAULT_SERVER) == "kept"
    config.write_text('admin_token = "written"\n')
    assert admin_token(DEFAULT_SERVER) == "written"
    (tmp_path / "other").write_text("in-a-file\n")
    monkeypatch.setenv("UNABRIDGED_ADMIN_TOKEN_FILE", str(tmp_path / "other"))
    assert admin_token(DEFAULT_SERVER) == "in-a-file"
    config.write_text("a mistake")  # nobody asks it
    assert admin_token(DEFAULT_SERVER) == "in-a-file"
    monkeypatch.delenv("UNABRIDGED_ADMIN_TOKEN_FILE")
    monkeypatch.setenv("UNABRIDGED_ADMIN_TOKEN", "given")
    assert admin_token(DEFAULT_SERVER) == "given"


def test_the_settings_file_may_name_the_token_s_file_or_the_directory_where_it_was_made(
    tmp_path: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("UNABRIDGED_DATA_DIR")
    (tmp_path / "token").write_text("in-a-file\n")
    config.write_text('admin_token_file = "../token"\n')
    assert admin_token(DEFAULT_SERVER) == "in-a-file"
    config.write_text('data_dir = "data"\n')
    (config.parent / "data").mkdir()
    (config.parent / "data" / ADMIN_TOKEN_FILE).write_text("made\n")
    assert admin_token(DEFAULT_SERVER) == "made"
    monkeypatch.setenv("UNABRIDGED_CONFIG", str(config.replace(tmp_path / "elsewhere.toml")))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / ADMIN_TOKEN_FILE).write_text("made-elsewhere\n")
    assert admin_token(DEFAULT_SERVER) == "made-elsewhere"


@pytest.mark.parametrize("token", [b"", b"\x85\xff", "h\u00e9".encode(), b"two words", b"two\nlines"])
def test_what_no_header_can_carry_is_no_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: bytes
) -> None:
    file = tmp_path / ADMIN_TOKEN_FILE
    file.write_bytes(token)
    with pytest.raises(CommandError, match=f"no admin token: {file} (is empty|holds more than visible)"):
        admin_token(DEFAULT_SERVER)
    monkeypatch.setenv("UNABRIDGED_ADMIN_TOKEN_FILE", str(file))
    with pytest.raises(
        OperatorError, match=r"UNABRIDGED_ADMIN_TOKEN(_FILE: .* is not UTF-8| must be visible)"
    ):
        admin_token(DEFAULT_SERVER)
    monkeypatch.delenv("UNABRIDGED_ADMIN_TOKEN_FILE")
    if token.isascii() and token:
        monkeypatch.setenv("UNABRIDGED_ADMIN_TOKEN", token.decode())
        with pytest.raises(CommandError, match="no admin token: UNABRIDGED_ADMIN_TOKEN must be"):
            admin_token(DEFAULT_SERVER)


def test_a_token_and_its_file_together_are_an_error_as_they_are_to_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNABRIDGED_ADMIN_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("UNABRIDGED_ADMIN_TOKEN", "given")
    with pytest.raises(SettingsError, match="are both set"):
        admin_token(DEFAULT_SERVER)


@pytest.mark.parametrize(
    "server", ["http://example.com:8080", "https://10.0.0.7", "http://127.0.0.1.example.com"]
)
def test_the_token_that_a_start_made_is_for_this_machine_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: str
) -> None:
    (tmp_path / ADMIN_TOKEN_FILE).write_text("made")
    for here in ("http://localhost:9", "http://[::1]:9", "http://127.0.0.2:9"):
        assert admin_token(here) == "made"
    with pytest.raises(CommandError, match=f"no admin token for {server}; set UNABRIDGED_ADMIN_TOKEN"):
        admin_token(server)
    monkeypatch.setenv("UNABRIDGED_ADMIN_TOKEN", "given")
    assert admin_token(server) == "given"


def test_without_a_token_the_complaint_says_what_to_set() -> None:
    with pytest.raises(CommandError, match="set UNABRIDGED_ADMIN_TOKEN"):
        admin_token(DEFAULT_SERVER)


def test_a_mistake_in_the_settings_file_hides_no_token_that_a_start_made(
    config: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("UNABRIDGED_DATA_DIR", str(tmp_path))
    config.write_text("nonsense = 1\n")
    with pytest.raises(CommandError, match="unknown key `nonsense`"):
        admin_token(DEFAULT_SERVER)
    (tmp_path / ADMIN_TOKEN_FILE).write_text("made")
    assert admin_token(DEFAULT_SERVER) == "made"
