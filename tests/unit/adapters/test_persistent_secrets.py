"""Secrets that are made at the first start and kept."""

from __future__ import annotations

import re
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from proxy.adapters.files.settings import persistent_secret
from proxy.errors import SettingsError


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_secret_is_made_once_and_found_again(tmp_path: Path) -> None:
    first = persistent_secret(tmp_path / "token")
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", first)
    assert persistent_secret(tmp_path / "token") == first
    assert persistent_secret(tmp_path / "other") != first


def test_a_secret_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "data" / "token"
    persistent_secret(path)
    assert (mode(path), mode(path.parent)) == (0o600, 0o700)


def test_a_secret_that_others_may_read_is_closed_again(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("kept\n")
    path.chmod(0o664)
    assert persistent_secret(path) == "kept"
    assert mode(path) == 0o600


def test_all_who_make_a_secret_at_once_get_the_same_one(tmp_path: Path) -> None:
    together = Barrier(8)

    def start(_: int) -> str:
        together.wait()
        return persistent_secret(tmp_path / "token")

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(start, range(8)))) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["token"]


def test_an_empty_secret_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "token").touch(0o600)
    with pytest.raises(SettingsError, match="is empty"):
        persistent_secret(tmp_path / "token")


def test_a_place_that_cannot_hold_a_secret_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match="cannot be kept: "):
        persistent_secret(tmp_path / "file" / "token")


@pytest.mark.parametrize(
    "content", [b"\xff\xfe", "schlüssel".encode(), b"two words", b"two\nlines", b"nul\0"]
)
def test_what_is_no_secret_is_an_error_that_says_what_to_do(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "token").write_bytes(content)
    said = "token holds more than visible ASCII characters; delete it, and the next start makes a new one"
    with pytest.raises(SettingsError, match=said):
        persistent_secret(tmp_path / "token")


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"\xff\xfe" * 20, b"short,old", b"one-of-many-secrets,two,three"]
)
def test_who_has_a_damaged_secret_of_names_is_not_told_to_delete_it(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "secret").write_bytes(content)
    with pytest.raises(SettingsError) as raised:
        persistent_secret(tmp_path / "secret")
    assert "put it back from a copy: with another secret no stored session is found" in str(raised.value)
    assert "delete" not in str(raised.value)


def test_a_kept_secret_of_names_may_be_no_shorter_than_one_that_is_set(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("short\n")
    with pytest.raises(SettingsError, match=r"must be at least 16 characters long: .*; to keep what"):
        persistent_secret(tmp_path / "secret")
    rotated = "a-long-and-new-secret,short"
    (tmp_path / "secret").write_text(rotated + "\n")
    assert persistent_secret(tmp_path / "secret") == rotated
