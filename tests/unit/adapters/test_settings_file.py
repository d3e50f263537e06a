"""The settings file: where it is found, what wins over it, and what is said of its mistakes."""

import os
from pathlib import Path

import pytest

from proxy.adapters.files.policies import PolicyLibrary
from proxy.adapters.files.settings import load_settings
from proxy.adapters.files.toml_file import FileError
from proxy.config import Settings
from proxy.errors import SettingsError


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith(("UNABRIDGED_", "OPENAI_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


def test_a_file_of_the_user_that_cannot_be_looked_at_is_not_taken_for_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ("x" * 300)))
    with pytest.raises(FileError, match=r"/config\.toml: cannot be read: File name too long$"):
        load_settings()


def test_a_name_that_no_file_can_have_is_told(file: Path) -> None:
    file.write_text('admin_token_file = "a\\u0000b"\n')
    with pytest.raises(SettingsError, match=r"cannot be read: no file has such a name$"):
        load_settings(config=file)


def test_a_flag_wins_over_a_variable_and_that_over_the_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text('port = 9001\nworkers = 2\nhttp_client = "httpx"\nlog_content = true\n')
    monkeypatch.setenv("UNABRIDGED_PORT", "9002")
    monkeypatch.setenv("UNABRIDGED_WORKERS", "3")
    settings, _ = load_settings(config=file, port=9003, workers=None)
    assert (settings.port, settings.workers, settings.http_client) == (9003, 3, "httpx")
    assert (settings.log_content, settings.drain_timeout) == (True, 30.0)


def test_a_secret_in_a_variable_wins_over_a_file_for_it_that_the_file_names(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text('secret_file = "nowhere"\nadmin_token_file = "token"\n')
    (file.parent / "token").write_text("from-beside-it\n")
    monkeypatch.setenv("UNABRIDGED_SECRET", "0123456789abcdef")
    settings, _ = load_settings(config=file)
    assert settings.secrets == ("0123456789abcdef",)
    assert settings.admin_token is not None
    assert settings.admin_token.get_secret_value() == "from-beside-it"


def test_it_is_named_by_a_flag_or_a_variable_else_the_users_own_and_never_that_of_the_working_directory(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent)
    file.write_text("port = 9001\n")
    assert load_settings()[0].port == 8080
    users = file.parent / "home" / "unabridged" / "config.toml"
    users.parent.mkdir(parents=True)
    users.write_text("port = 9002\n")
    assert load_settings()[0].port == 9002
    monkeypatch.setenv("UNABRIDGED_CONFIG", "config.toml")
    assert load_settings()[0].port == 9001
    assert load_settings(config=users)[0].port == 9002


def test_a_relative_name_in_a_directory_that_is_gone_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(FileError, match=r"^mine\.toml: cannot be read: the current directory is gone$"):
        load_settings(config="mine.toml")


def test_paths_in_it_start_at_its_own_directory(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    file.write_text('policies = "ours"\npolicy = "ours/mine.toml"\ndata_dir = "~/data"\n')
    settings, _ = load_settings(config=file)
    assert settings.policies == file.parent / "ours"
    assert settings.policy == str(file.parent / "ours" / "mine.toml")
    assert settings.data_dir == Path("/home/me/data")


@pytest.mark.parametrize("name", sorted(Settings.model_fields.keys() - {"config"}))
def test_every_setting_may_stand_in_it(name: str, file: Path) -> None:
    file.write_text(f"{name} = []\n")
    with pytest.raises((FileError, SettingsError)) as caught:
        load_settings(config=file, port="wrong")
    assert "unknown key" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('port = 9000\npolici = "off"\n', "2: unknown key `polici`; did you mean `policy`?"),
        ("port = 70000\n", "1: `port` must be at most 65535"),
        ('port = "eighty"\n', "1: `port` must be a whole number"),
        ('upstream = "h/v1"\n', "1: `upstream` must be a URL such as https://api.openai.com/v1"),
        ('log_level = "warn"\n', '1: `log_level` must be "debug", "info", "warning" or "error"'),
        (
            'policy = "~nosuchuser/x.toml"\n',
            "1: `policy`: there is no home directory as in ~nosuchuser/x.toml",
        ),
        (
            '[[use]]\nheader = {"X Team:" = "a"}\npolicy = "off"\n',
            '2: `use.header."X Team:"` is not the name of a header',
        ),
        ('config = "x"\n', "1: unknown key `config`: a settings file names no other"),
        ('OPENAI_BASE_URL = "x"\n', "1: unknown key `OPENAI_BASE_URL`"),
        (
            '[[use]]\npolicy = "off"\n[[use]]\nmodle = "x"\npolicy = "off"\n',
            "4: unknown key `use.modle`; did you mean `model`?",
        ),
        ('[[use]]\nmodel = "x"\n', "1: `use.policy` is required"),
        ('[[use]]\nmodel = ""\npolicy = "off"\n', "2: `use.model` must not be empty"),
        ('[[use]]\nheader = "X-Team"\npolicy = "off"\n', "2: `use.header` must be a table"),
        ('[use]\npolicy = "off"\n', "1: `use` must be an array; one of tables is written `[[name]]`"),
        (
            "port = \n",
            "1: is not TOML: it is no valid value (text has quotes; 0.5, not .5; true, not True)",
        ),
    ],
)
def test_a_mistake_is_told_by_file_line_and_nearest_key(file: Path, text: str, said: str) -> None:
    file.write_text(text)
    with pytest.raises(FileError) as caught:
        load_settings(config=file, port=8080)
    assert str(caught.value).startswith(f"{file}:{said}")


def test_a_file_that_is_named_has_to_be_there(file: Path) -> None:
    with pytest.raises(FileError, match=r"config\.toml: cannot be read: No such file"):
        load_settings(config=file)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('\npolicy = "agnt"\n', '2: `policy = "agnt"`: there is no such policy; did you mean `agent`?'),
        (
            '[[use]]\nclient = "a"\npolicy = "off"\n[[use]]\nclient = "b"\npolicy = "nope"\n',
            '6: `policy = "nope"`: there is no such policy; there are `agent`, ',
        ),
        ('[[use]]\npolicy = "../x"\n', '2: `policy = "../x"`: this is not the name of a policy'),
    ],
)
def test_a_policy_that_there_is_not_is_told_by_file_and_line(file: Path, text: str, said: str) -> None:
    file.write_text(text)
    _, written = load_settings(config=file)
    assert written is not None
    with pytest.raises(FileError) as caught:
        written.check(PolicyLibrary())
    assert str(caught.value).startswith(f"{file}:{said}")
