"""Settings: where each comes from, and what stops the start."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from proxy.config import Settings, is_loopback
from proxy.environment import default_data_dir, unknown_variables
from proxy.errors import SettingsError

LONG = "0123456789abcdef"


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("UNABRIDGED_", "OPENAI_", "XDG_")):
            monkeypatch.delenv(name)


def complaint(**flags: object) -> str:
    with pytest.raises(SettingsError) as caught:
        Settings.load(**flags)
    return str(caught.value)


@pytest.mark.parametrize("name", ["host", "policy", "log_format"])
def test_bytes_that_are_no_text_are_said_in_plain_words(name: str) -> None:
    assert complaint(**{name: "\udcff"}) == f"--{name.replace('_', '-')} must be UTF-8"


def test_nothing_set_gives_the_defaults_of_the_contract() -> None:
    settings = Settings.load()
    assert settings.upstream == "https://api.openai.com/v1"
    assert (settings.host, settings.port, settings.policy) == ("127.0.0.1", 8080, "default")
    assert settings.store is None
    assert settings.log_content is False


def test_the_environment_sets_what_a_flag_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNABRIDGED_PORT", "9000")
    assert Settings.load(port=None).port == 9000
    assert Settings.load(port=9100).port == 9100


def test_memory_is_a_number_of_bytes_or_has_a_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings.load().body_memory == 512 * 2**20
    assert Settings.load().cache_memory == 256 * 2**20
    monkeypatch.setenv("UNABRIDGED_BODY_MEMORY", "2000000")
    assert Settings.load().body_memory == 2_000_000
    assert Settings.load(body_memory="2GiB").body_memory == 2 * 2**30
    assert complaint(body_memory="much").startswith("UNABRIDGED_BODY_MEMORY must be")
    assert complaint(body_memory="0B").startswith("UNABRIDGED_BODY_MEMORY must be")
    assert complaint(body_memory="1000").startswith("UNABRIDGED_BODY_MEMORY must be at least 1MiB")
    assert complaint(cache_memory="1MiB").startswith("UNABRIDGED_CACHE_MEMORY must be at least 8MiB")


def test_origins_and_hosts_are_listed_with_commas_or_flag_by_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (Settings.load().cors_origin, Settings.load().allowed_host) == ((), ())
    monkeypatch.setenv("UNABRIDGED_CORS_ORIGIN", "https://a.example, http://B.example:81/,")
    monkeypatch.setenv("UNABRIDGED_ALLOWED_HOST", "a.example")
    assert Settings.load().cors_origin == ("https://a.example", "http://b.example:81/")
    assert Settings.load().allowed_host == ("a.example",)
    flags = {"cors_origin": ["app://x", "http://[::1]:81"], "allowed_host": ["b", "C.example"]}
    assert Settings.load(**flags).cors_origin == ("app://x", "http://[::1]:81")
    assert Settings.load(**flags).allowed_host == ("b", "c.example")


@pytest.mark.parametrize(
    "origin",
    "* null a.example https://a.example/page https://u@a.example https://a.example:99999 http://[:]".split(),
)
def test_what_is_no_origin_is_refused(origin: str) -> None:
    said = complaint(cors_origin=["https://b.example", origin])
    assert said == "--cors-origin must be an origin such as https://chat.example.com"


@pytest.mark.parametrize("name", ["*", "a.example:8080", "http://a.example", "a b"])
def test_what_is_no_name_of_a_host_is_refused(name: str) -> None:
    said = complaint(allowed_host=[name])
    assert said == "--allowed-host must be a name such as models.example.com, without a port"


def test_a_public_url_is_a_url_of_the_web() -> None:
    assert Settings.load(public_url="https://models.example/").public_url == "https://models.example"
    assert complaint(public_url="models.example").startswith("--public-url must be a URL such as https://")


def test_an_empty_variable_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNABRIDGED_PORT", "")
    assert Settings.load().port == 8080


def test_the_upstream_comes_from_the_sdks_variable_our_own_or_the_flag(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://sdk/v1/")
    assert Settings.load().upstream == "http://sdk/v1"
    monkeypatch.setenv("UNABRIDGED_UPSTREAM", "http://ours/v1")
    assert Settings.load().upstream == "http://ours/v1"
    assert Settings.load(upstream="http://flag/v1").upstream == "http://flag/v1"


def test_a_password_in_the_upstream_is_refused_and_not_repeated() -> None:
    said = complaint(upstream="https://user:hunter2@host/v1")
    assert said.startswith("--upstream ")
    assert "hunter2" not in said


@pytest.mark.parametrize(
    "url",
    [
        "",
        "host/v1",
        "ftp://host",
        "https://",
        "http://h/v1?a=b",
        "http://h/#a",
        "http://h:99999/v1",
        "http://[::1",
    ],
)
def test_an_upstream_that_is_no_plain_http_url_is_refused(url: str) -> None:
    assert complaint(upstream=url).startswith("--upstream must ")


def test_a_store_in_memory_is_not_shared_by_several_workers() -> None:
    said = complaint(store="memory://", workers=2)
    assert said.startswith("memory:// is within one process")
    assert "--store" in said
    assert Settings.load(store="memory://", workers=1).workers == 1


def test_what_kubernetes_sets_for_a_service_of_our_name_is_no_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {
        "PORT": "tcp://10.0.0.1:80",
        "STORE": "tcp://10.0.0.2:6379",
        "SERVICE_HOST": "10.0.0.1",
        "PORT_80_TCP_PROTO": "tcp",
        "VALKEY_SERVICE_PORT": "6379",
    }.items():
        monkeypatch.setenv(f"UNABRIDGED_{name}", value)
    settings = Settings.load()
    assert (settings.port, settings.store) == (8080, None)
    assert unknown_variables(Settings.model_fields) == []


def test_a_variable_that_there_is_not_is_known_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNABRIDGED_POLICI", "agent")
    monkeypatch.setenv("UNABRIDGED_SERVER", "http://127.0.0.1:8080")
    monkeypatch.setenv("UNABRIDGED_SECRET_FILE", "/run/secret")
    monkeypatch.setenv("unabridged_workers", "2")
    assert unknown_variables(Settings.model_fields) == [("UNABRIDGED_POLICI", "UNABRIDGED_POLICY")]


def test_a_server_is_not_its_own_upstream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:8080/v1")
    assert "is this server itself" in complaint()
    assert Settings.load(port=8081).upstream == "http://localhost:8080/v1"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "example.org"])
def test_off_loopback_the_server_needs_an_explicit_admin_token(host: str) -> None:
    assert "UNABRIDGED_ADMIN_TOKEN" in complaint(host=host)
    assert Settings.load(host=host, admin_token="t0ken").host == host


def test_loopback_is_what_only_this_machine_reaches() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost")))
    assert not any(map(is_loopback, ("", "0.0.0.0", "::", "localhost.example.org")))


@pytest.mark.parametrize(
    "store",
    ["redis://h", "rediss://h", "redis+cluster://h", "rediss+cluster://h/0", "unix:///run/valkey.sock"],
)
def test_a_shared_store_needs_a_secret(store: str) -> None:
    assert "UNABRIDGED_SECRET" in complaint(store=store)
    assert Settings.load(store=store, secret=LONG).shares_store


def test_the_embedded_store_and_one_in_memory_need_no_secret() -> None:
    assert not Settings.load().shares_store
    assert not Settings.load(store="memory://").shares_store


def test_an_unknown_store_is_refused_and_its_password_not_repeated() -> None:
    said = complaint(store="mysql://:hunter2@host", secret=LONG)
    assert "redis://" in said
    assert "hunter2" not in said


def test_a_secret_may_be_two_while_it_is_rotated() -> None:
    assert Settings.load(secret=f"{LONG},{LONG[::-1]}").secrets == (LONG, LONG[::-1])
    assert Settings.load(secret=LONG).secrets == (LONG,)
    assert Settings.load().secrets == ()


@pytest.mark.parametrize("secret", ["fifteen-letters", f"short,{LONG}"])
def test_a_secret_that_could_be_guessed_is_refused_and_not_repeated(secret: str) -> None:
    said = complaint(secret=secret)
    assert said.startswith("UNABRIDGED_SECRET must be at least 16 characters long")
    assert secret not in said


def test_an_older_secret_may_be_short_while_it_is_rotated() -> None:
    assert Settings.load(secret=f"{LONG},old").secrets == (LONG, "old")


@pytest.mark.parametrize("secret", [f"{LONG},", f",{LONG}", f"{LONG},b,c", f"{LONG}, old"])
def test_a_malformed_secret_is_refused(secret: str) -> None:
    said = complaint(secret=secret)
    assert said == 'UNABRIDGED_SECRET must be one secret, or "new,old" while rotating, without spaces'


@pytest.mark.parametrize("name", ["SECRET", "ADMIN_TOKEN", "UPSTREAM_KEY"])
def test_a_secret_may_stand_in_a_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kept").write_text("from-the-file-itself\n")
    monkeypatch.setenv(f"UNABRIDGED_{name}_FILE", str(tmp_path / "kept"))
    assert getattr(Settings.load(), name.lower()).get_secret_value() == "from-the-file-itself"


def test_a_secret_given_twice_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kept").write_text("one")
    monkeypatch.setenv("UNABRIDGED_SECRET", "two")
    monkeypatch.setenv("UNABRIDGED_SECRET_FILE", str(tmp_path / "kept"))
    assert complaint() == "UNABRIDGED_SECRET and UNABRIDGED_SECRET_FILE are both set; keep one of them"


def test_a_secret_file_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNABRIDGED_ADMIN_TOKEN_FILE", "/nowhere/token")
    assert "/nowhere/token cannot be read" in complaint()


def test_no_secret_is_shown_by_printing_the_settings() -> None:
    settings = Settings.load(
        secret="hunter2-hunter2-hunter2",
        admin_token="hunter2",
        upstream_key="hunter2",
        store="redis://:hunter2@h",
    )
    assert "hunter2" not in f"{settings!r} {settings!s}"


def test_an_unusable_admin_token_is_refused_without_repeating_it() -> None:
    said = complaint(admin_token="two words")
    assert said == "UNABRIDGED_ADMIN_TOKEN must be visible ASCII characters without spaces"


def test_complaints_name_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNABRIDGED_PORT", "http")
    monkeypatch.setenv("UNABRIDGED_WORKERS", "0")
    assert complaint().splitlines() == [
        "UNABRIDGED_PORT must be a whole number",
        "UNABRIDGED_WORKERS must be at least 1",
    ]


@pytest.mark.parametrize(
    ("flag", "value", "said"),
    [
        ("port", "eighty", "--port must be a whole number"),
        ("port", "8080.5", "--port must be a whole number"),
        ("port", "-1", "--port must be at least 0"),
        ("port", "65536", "--port must be at most 65535"),
        ("workers", "0", "--workers must be at least 1"),
        ("workers", "1001", "--workers must be at most 1000"),
        ("host", "", "--host must not be empty"),
        ("upstream", "localhost:8000/v1", "--upstream must be a URL such as https://api.openai.com/v1"),
        (
            "upstream",
            "http://localhost:8000/v1/chat/completions/",
            "--upstream must end before /chat/completions: http://localhost:8000/v1",
        ),
        ("tenant_header", "two words", "--tenant-header must be the name of a header"),
    ],
)
def test_complaints_name_the_flag_where_one_was_given(flag: str, value: str, said: str) -> None:
    assert complaint(**{flag: value}) == said


SCHEMES = ("redis", "rediss", "redis+cluster", "rediss+cluster", "unix")


@pytest.mark.parametrize(
    ("store", "said"),
    [
        (
            "localhost:6379",
            f"must be a URL that begins with {', '.join(f'{each}://' for each in SCHEMES)} or memory://",
        ),
        ("redis://:hush@h:port", "must be a URL such as redis://localhost:6379/0"),
        ("redis://:hush@h:99999", "must be a URL such as redis://localhost:6379/0"),
        ("redis://[::1", "must be a URL such as redis://localhost:6379/0"),
        ("redis://h h", "must be a URL such as redis://localhost:6379/0"),
        (
            "redis://:hush@h/db",
            "may end in the number of a database and nothing else, as in redis://localhost:6379/0",
        ),
        ("redis+cluster://:hush@h/1", "names a cluster, which has one database: 0"),
        ("redis+cluster://:hush@h?db=1", "names a cluster, which has one database: 0"),
        ("unix://", "must name a socket, as in unix:///run/valkey.sock"),
        *(
            (f"memory://{more}", "must end after memory://, which is within the process and has no address")
            for more in ("x", "/0", ":hush@h:6379/0", "?db=1", "#1")
        ),
    ],
)
def test_a_complaint_about_the_store_is_one_sentence_without_its_password(store: str, said: str) -> None:
    assert complaint(store=store, secret=LONG) == f"--store {said}"


@pytest.mark.parametrize(
    "store", ["redis://h", "redis://h/", "rediss://u:p@h:6380/12", "unix:///run/v.sock?db=1"]
)
def test_a_store_may_have_a_port_a_user_and_a_database(store: str) -> None:
    assert Settings.load(store=store, secret=LONG).store == store


def test_a_tenant_header_is_a_header_name_in_lower_case() -> None:
    assert Settings.load(tenant_header="X-Tenant").tenant_header == "x-tenant"


def test_data_lives_under_the_users_data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_data_dir() == Path.home() / ".local" / "share" / "unabridged"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert Settings.load().data_dir == tmp_path / "unabridged"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert default_data_dir() == Path.home() / ".local" / "share" / "unabridged"


def test_a_relative_data_directory_is_within_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("UNABRIDGED_DATA_DIR", "data")
    assert Settings.load().data_dir == here / "data"
    here.rmdir()
    assert complaint() == "UNABRIDGED_DATA_DIR must be absolute: the working directory has been deleted"
