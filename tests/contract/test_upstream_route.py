"""By which way an upstream is asked: outbound proxies, certificates, and what an operator hears of them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from proxy.adapters.upstream import HttptoolsUpstream, HttpxUpstream, open_upstream, outbound_proxy
from proxy.config import Settings
from proxy.errors import SettingsError, UnabridgedError, UpstreamError, UpstreamTimeout, UpstreamUnreachable
from tests.support.answers import get
from tests.support.certificates import Authority
from tests.support.outbound import OutboundProxy
from tests.support.outbound import outbound_proxy as running_proxy
from tests.support.servers import PATIENCE, FakeUpstream, eventually

PROXY = "http://proxy.example:3128"
UPSTREAM = "https://api.example.com/v1"


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith(("UNABRIDGED_", "OPENAI_")):
            monkeypatch.delenv(name)


# --- which proxy ---


def shown(upstream: str = UPSTREAM, **variables: str) -> str | None:
    """The proxy that is used with these variables."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        found = outbound_proxy(upstream)
        return found and str(found.url)


@pytest.mark.parametrize(
    ("variables", "upstream", "expected"),
    [
        ({}, UPSTREAM, None),
        ({"HTTPS_PROXY": PROXY}, UPSTREAM, PROXY),
        ({"https_proxy": PROXY}, UPSTREAM, PROXY),
        ({"https_proxy": PROXY, "HTTPS_PROXY": "http://other"}, UPSTREAM, PROXY),
        ({"HTTPS_PROXY": PROXY}, "http://api.example.com/v1", None),
        ({"HTTP_PROXY": PROXY}, "http://api.example.com/v1", PROXY),
        ({"HTTP_PROXY": PROXY}, UPSTREAM, None),
        ({"ALL_PROXY": PROXY}, UPSTREAM, PROXY),
        ({"ALL_PROXY": "http://other", "HTTPS_PROXY": PROXY}, UPSTREAM, PROXY),
        ({"HTTPS_PROXY": "proxy.example:3128"}, UPSTREAM, PROXY),
        ({"HTTPS_PROXY": ""}, UPSTREAM, None),
        ({"HTTPS_PROXY": "http://me:pass%40word@proxy.example:3128"}, UPSTREAM, PROXY),
    ],
)
def test_the_environment_names_the_proxy_as_for_every_program(
    variables: dict[str, str], upstream: str, expected: str | None
) -> None:
    assert shown(upstream, **variables) == expected


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "[::1]"])
def test_an_upstream_of_this_machine_is_never_asked_by_a_proxy(host: str) -> None:
    assert shown(f"http://{host}:8000/v1", HTTP_PROXY=PROXY, ALL_PROXY=PROXY) is None


@pytest.mark.parametrize(
    ("excepted", "upstream", "is_excepted"),
    [
        ("api.example.com", UPSTREAM, True),
        ("example.com", UPSTREAM, True),
        (".example.com", UPSTREAM, True),
        ("*.example.com", UPSTREAM, True),
        ("EXAMPLE.com.", UPSTREAM, True),
        ("ample.com", UPSTREAM, False),
        ("example.com.evil", UPSTREAM, False),
        ("www.example.com", UPSTREAM, False),
        ("other, example.com", UPSTREAM, True),
        ("other example.com", UPSTREAM, True),
        ("example.com:443", UPSTREAM, True),
        ("example.com:8443", UPSTREAM, False),
        ("example.com:8443", "https://api.example.com:8443/v1", True),
        ("*", UPSTREAM, True),
        ("", UPSTREAM, False),
        (",", UPSTREAM, False),
        ("10.0.0.0/8", "https://10.1.2.3/v1", True),
        ("10.0.0.0/8", "https://11.1.2.3/v1", False),
        ("10.1.2.3", "https://10.1.2.3:8443/v1", True),
        ("10.1.2.3:443", "https://10.1.2.3:8443/v1", False),
        ("10.0.0.0/8", UPSTREAM, False),
        ("fd00::/8", "https://[fd00::7]/v1", True),
        ("fd00::7", "https://[fd00::7]/v1", True),
        ("[fd00::7]:8443", "https://[fd00::7]:8443/v1", True),
        ("[fd00::7]:8443", "https://[fd00::7]/v1", False),
    ],
)
def test_no_proxy_excepts_names_suffixes_ports_addresses_and_networks(
    excepted: str, upstream: str, is_excepted: bool
) -> None:
    assert (shown(upstream, HTTPS_PROXY=PROXY, NO_PROXY=excepted) is None) == is_excepted
    assert (shown(upstream, HTTPS_PROXY=PROXY, no_proxy=excepted) is None) == is_excepted


@pytest.mark.parametrize(
    "value",
    ["socks5://me:secret@proxy:1080", "http://", "http://a:b:c", "http://a:99999", "http://a b", "://"],
)
def test_what_is_no_http_proxy_stops_the_start_and_is_not_repeated(value: str) -> None:
    with pytest.raises(SettingsError) as caught:
        shown(HTTPS_PROXY=value)
    assert str(caught.value).startswith("HTTPS_PROXY must be a URL such as http://")
    assert "secret" not in str(caught.value)


# --- which client ---


def opened(**settings: Any) -> HttptoolsUpstream | HttpxUpstream:
    made = open_upstream(Settings.load(**{"upstream": UPSTREAM, **settings}))
    assert isinstance(made, (HttptoolsUpstream, HttpxUpstream))
    return made


def test_our_own_connections_are_left_only_for_what_they_do_not_have(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    signed = authority.sign("us")
    certificate = {"upstream_cert": signed.certificate, "upstream_cert_key": signed.key}
    assert isinstance(opened(), HttptoolsUpstream)
    assert isinstance(opened(upstream_ca=authority.file), HttptoolsUpstream)
    assert isinstance(opened(http_client="httpx"), HttpxUpstream)
    assert isinstance(opened(**certificate), HttpxUpstream)
    monkeypatch.setenv("HTTPS_PROXY", "http://me:secret@proxy.example:3128")
    assert isinstance(opened(), HttpxUpstream)
    assert opened().proxy == PROXY
    assert isinstance(opened(upstream="http://127.0.0.1:1/v1"), HttptoolsUpstream)


@pytest.mark.parametrize("url", ["http://256.1.1.1/v1", "https://☃.example/v1"])
def test_an_upstream_whose_host_cannot_exist_stops_the_start(url: str) -> None:
    with pytest.raises(SettingsError) as caught:
        opened(upstream=url)
    assert str(caught.value).startswith("UNABRIDGED_UPSTREAM is not a valid URL: ")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"upstream_ca": "nowhere.pem"}, "UNABRIDGED_UPSTREAM_CA: nowhere.pem cannot be used: No such file"),
        ({"upstream_ca": __file__}, "it is not PEM"),
        ({"upstream_cert": "nowhere.pem"}, "UNABRIDGED_UPSTREAM_CERT: nowhere.pem cannot be used: No such"),
        ({"upstream_cert_key": "key.pem"}, "UNABRIDGED_UPSTREAM_CERT_KEY needs UNABRIDGED_UPSTREAM_CERT too"),
        (
            {"upstream": "http://a.example", "upstream_ca": "ca.pem"},
            "UNABRIDGED_UPSTREAM_CA is for an upstream whose URL begins with https://",
        ),
    ],
)
def test_files_that_cannot_be_used_stop_the_start(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        opened(**settings)
    assert said in str(caught.value)


def test_issuers_that_every_program_is_told_of_and_cannot_be_read_stop_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "nowhere.pem")
    with pytest.raises(SettingsError, match=r"^SSL_CERT_FILE: nowhere\.pem cannot be used: No such file"):
        opened()


def test_of_a_certificate_and_its_key_the_file_at_fault_is_named(
    authority: Authority, tmp_path: Path
) -> None:
    ours, others = authority.sign("us"), authority.sign("others")
    sealed = authority.sign("sealed", password=b"secret")  # and nobody is asked for it
    unfit = "cannot be used: it has no key of the certificate that can be used without a password"
    for certificate, key, said in (
        (ours.certificate, tmp_path / "nowhere.pem", "_KEY: {key} cannot be used: No such file or directory"),
        (ours.certificate, others.key, f"_KEY: {{key}} {unfit}"),
        (sealed.certificate, sealed.key, f"_KEY: {{key}} {unfit}"),
        (ours.certificate, None, f": {{certificate}} {unfit}"),
        (ours.key, ours.key, ": {certificate} cannot be used: it is not PEM that can be used"),
    ):
        with pytest.raises(SettingsError) as caught:
            opened(upstream_cert=certificate, upstream_cert_key=key)
        told = "UNABRIDGED_UPSTREAM_CERT" + said.format(certificate=certificate, key=key)
        assert str(caught.value) == told


# --- certificates ---


@pytest.fixture(params=[HttptoolsUpstream, HttpxUpstream])
def client(request: pytest.FixtureRequest) -> Any:
    return request.param


async def test_who_has_the_certificate_that_is_wanted_is_answered_and_nobody_else(
    authority: Authority, client: Any
) -> None:
    signed = authority.sign("us")
    knowing = authority.trusting()
    knowing.load_cert_chain(signed.certificate, signed.key)
    async with FakeUpstream().serve(authority.serving("127.0.0.1", wants_certificate=True)) as server:
        url = server.url.replace("http:", "https:")
        async with aclosing(client(url, tls=knowing)) as upstream:
            assert await get(upstream) == b'{"ok": true}'
        async with aclosing(client(url, tls=authority.trusting())) as upstream:
            with pytest.raises(UpstreamError):  # it may say why, or hang up
                await get(upstream)
    assert len(server.requests) == 1


async def test_settings_name_the_issuer_the_certificate_and_its_key(authority: Authority) -> None:
    signed = authority.sign("us")
    settings = {
        "upstream_ca": authority.file,
        "upstream_cert": signed.certificate,
        "upstream_cert_key": signed.key,
    }
    async with FakeUpstream().serve(authority.serving("127.0.0.1", wants_certificate=True)) as server:
        url = server.url.replace("http:", "https:")
        async with aclosing(opened(upstream=url, **settings)) as upstream:
            assert await get(upstream) == b'{"ok": true}'


# --- what the proxy does wrong ---


@pytest.fixture
async def proxy(server: FakeUpstream, authority: Authority) -> AsyncIterator[OutboundProxy]:
    async with running_proxy(server.port, authority.serving("model.example")) as running:
        yield running


def by(proxy: OutboundProxy, authority: Authority, *, user: str = "", scheme: str = "https") -> HttpxUpstream:
    url = proxy.url.replace("//", f"//{user}@") if user else proxy.url
    patience = 0.5 if proxy.is_silent else PATIENCE
    options: dict[str, Any] = {"tls": authority.trusting(), "connect_timeout": patience}
    return HttpxUpstream(f"{scheme}://model.example/v1", proxy=httpx2.Proxy(url), **options)


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_password_is_said_to_the_proxy_and_to_nobody_else(
    proxy: OutboundProxy, authority: Authority, server: FakeUpstream, scheme: str
) -> None:
    proxy.password = "me:p@ss word"
    async with aclosing(by(proxy, authority, user="me:p%40ss%20word", scheme=scheme)) as upstream:
        assert await get(upstream) == b'{"ok": true}'
        assert upstream.proxy == proxy.url
    assert proxy.credentials == ["me:p@ss word"]
    assert proxy.carried == [
        "CONNECT model.example:443 HTTP/1.1"
        if scheme == "https"
        else "GET http://model.example/v1/models HTTP/1.1"
    ]
    assert server.requests[0].headers == [(b"host", b"model.example")]


FAULTS: dict[str, tuple[dict[str, Any], type[UnabridgedError], str]] = {
    "another password": ({"password": "x:y"}, UpstreamUnreachable, "wants other credentials (407)"),
    "a refusal": ({"answer": b"HTTP/1.1 403 sk-secret\r\n\r\n"}, UpstreamUnreachable, "proxy refused (403)"),
    "no way on": ({"answer": b"HTTP/1.1 502 Bad\r\n\r\n"}, UpstreamUnreachable, "proxy refused (502)"),
    "an end": ({"answer": b""}, UpstreamUnreachable, "proxy gave no valid answer"),
    "no http": ({"answer": b"\x00 sk-secret\r\n\r\n"}, UpstreamUnreachable, "proxy gave no valid answer"),
    "silence": ({"is_silent": True}, UpstreamTimeout, "the outbound proxy made no connection"),
}


@pytest.mark.parametrize("what", FAULTS)
async def test_what_the_proxy_does_wrong_is_said_of_the_proxy(
    proxy: OutboundProxy, authority: Authority, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    members, expected, said = FAULTS[what]
    for name, value in members.items():
        setattr(proxy, name, value)
    async with aclosing(by(proxy, authority, user="me:hunter2")) as upstream:
        with pytest.raises(expected) as raised:
            await get(upstream)
        await eventually(lambda: proxy.open_connections == 0)
    assert type(raised.value) is expected
    assert said in raised.value.message
    (told,) = [record for record in caplog.records if record.getMessage() == "the upstream failed"]
    fields: dict[str, str] = vars(told)["fields"]
    assert (fields["host"], fields["proxy"]) == ("model.example", proxy.url)
    assert not any(word in str(fields) + raised.value.message for word in ("hunter2", "sk-secret"))


async def test_a_forwarding_proxys_wish_for_a_password_is_no_answer_for_clients(
    proxy: OutboundProxy, authority: Authority
) -> None:
    proxy.password = "x:y"
    async with aclosing(by(proxy, authority, scheme="http")) as upstream:
        with pytest.raises(UpstreamUnreachable) as raised:
            await get(upstream)
    assert "the outbound proxy wants other credentials (407)" in raised.value.message


async def test_a_proxy_that_does_not_listen_is_told_from_an_upstream_that_does_not(
    authority: Authority, proxy: OutboundProxy
) -> None:
    nobody = OutboundProxy(url="http://127.0.0.1:1")
    async with aclosing(by(nobody, authority)) as upstream:
        with pytest.raises(UpstreamUnreachable) as raised:
            await get(upstream)
    assert "the outbound proxy: connection refused" in raised.value.message
    proxy.port = 1
    async with aclosing(by(proxy, authority, scheme="http")) as upstream:
        with pytest.raises(UnabridgedError) as raised:
            await get(upstream)
    assert "outbound" not in raised.value.message


async def test_a_certificate_is_the_upstreams_within_the_tunnel(
    proxy: OutboundProxy, authority: Authority, server: FakeUpstream
) -> None:
    proxy.tls = authority.serving("another.example")
    async with aclosing(by(proxy, authority)) as upstream:
        with pytest.raises(UpstreamUnreachable) as raised:
            await get(upstream)
    assert "certificate not trusted" in raised.value.message
    assert "proxy" not in raised.value.message
    assert server.requests == []


async def test_who_leaves_while_the_proxy_is_silent_leaves_nothing_behind(
    proxy: OutboundProxy, authority: Authority
) -> None:
    async with aclosing(by(proxy, authority)) as upstream:
        proxy.is_silent = True
        task = asyncio.create_task(get(upstream))
        await eventually(lambda: proxy.open_connections == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await eventually(lambda: proxy.open_connections == 0)
