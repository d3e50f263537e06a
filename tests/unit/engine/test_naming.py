"""Who is told apart from whom, asked for once or a hundred times."""

from __future__ import annotations

import pytest

from proxy.cache import CacheMemory
from proxy.core.memory.records import ScopeKind
from proxy.engine.intake.naming import SESSION_HEADER, Headers, Naming

KEY = {b"authorization": b"Bearer sk-1"}
CALLERS: list[Headers] = [
    {},
    KEY,
    {b"authorization": b"Bearer sk-2"},
    {b"api-key": b"Bearer sk-1"},
    {**KEY, b"api-key": b"sk-2"},
    {**KEY, SESSION_HEADER: b"one"},
    {**KEY, SESSION_HEADER: b"two"},
    {SESSION_HEADER: b"one"},
]


def test_callers_that_differ_have_different_names_however_often_they_come() -> None:
    naming = Naming("secret", CacheMemory())
    once = [naming.caller(headers) for headers in CALLERS]
    assert [naming.caller(headers) for headers in CALLERS] == once
    assert [Naming("secret", CacheMemory()).caller(headers) for headers in CALLERS] == once
    assert len({(caller.tenant, caller.name) for caller in once}) == len(CALLERS)


@pytest.mark.parametrize("former", [None, "former"])
def test_a_scheme_is_the_same_however_it_is_spelled_and_a_key_is_not(former: str | None) -> None:
    naming = Naming("secret", CacheMemory(), former=former)
    once = naming.caller(KEY)
    for spelled in (b"bearer sk-1", b"BEARER   sk-1", b"bEARER\t sk-1"):
        assert naming.caller({b"authorization": spelled}) == once
    others = [b"Bearer SK-1", b"Bearersk-1", b"sk-1", b"Basic sk-1", b"Bearer sk-1 x"]
    others_too = [{b"authorization": other} for other in others] + [{b"api-key": b"Bearer sk-1"}]
    assert once.tenant not in {naming.caller(headers).tenant for headers in others_too}
    apart = [naming.caller({b"api-key": key}).tenant for key in (b"Bearer sk-1", b"bearer sk-1")]
    assert len(set(apart)) == 2


GATEWAYS = (
    *(b"x-litellm-api-key", b"x-portkey-api-key", b"cf-aig-authorization"),
    *(b"helicone-auth", b"ocp-apim-subscription-key", b"apikey"),
)


@pytest.mark.parametrize("beside", [{}, KEY, {b"authorization": b"Bearer dummy"}])
@pytest.mark.parametrize("header", GATEWAYS)
def test_keys_that_gateways_read_tell_callers_apart_alone_and_beside_another(
    header: bytes, beside: Headers
) -> None:
    naming = Naming("secret", CacheMemory())
    ann, bob, nobody = (
        naming.caller({**beside, **each}).tenant for each in ({header: b"sk-a"}, {header: b"sk-b"}, {})
    )
    assert len({ann, bob, nobody}) == 3


def test_who_sends_a_providers_key_alone_has_the_name_of_ever() -> None:
    naming = Naming("secret", CacheMemory())
    tenants = [naming.caller(headers).tenant for headers in (KEY, {b"api-key": b"sk-1"}, {})]
    assert tenants == [
        "0c6e3fa38b9ff58edc6af2ff7b1d4879",
        "6ca6b01a0ade97fe7d8087c6a31754cb",
        "f9f3f5b9c4dbfe134ce51bc5ad7b0638",
    ]


def test_behind_a_gateway_its_header_alone_says_who_calls() -> None:
    naming = Naming("secret", CacheMemory(), "x-tenant")
    first, same, other = (
        naming.caller({b"x-tenant": tenant, b"authorization": key})
        for tenant, key in ((b"a", b"Bearer 1"), (b"a", b"Bearer 2"), (b"b", b"Bearer 1"))
    )
    assert first == same
    assert first.tenant != other.tenant


@pytest.mark.parametrize("former", [None, "former"])
def test_an_id_that_was_issued_names_its_session_to_its_caller_alone(former: str | None) -> None:
    naming = Naming("secret", CacheMemory(), former=former)
    caller = naming.caller(CALLERS[5])
    assert caller.key is not None
    headerless = caller.key._replace(tag="0" * 24, sid="1" * 16)
    issued = naming.issue(caller.tenant, headerless).encode()
    for _ in range(2):
        assert naming.caller({**KEY, SESSION_HEADER: issued}).key == headerless
        assert naming.caller({SESSION_HEADER: issued}).key != headerless


def test_what_is_remembered_has_another_name_for_each_tenant_kind_and_name() -> None:
    naming, kinds = Naming("secret", CacheMemory()), ScopeKind
    scopes = [
        naming.scope(kinds.CHANNEL, "t", "", "general"),
        naming.scope(kinds.CHANNEL, "t", "acme", "general"),
        naming.scope(kinds.CHANNEL, "other", "acme", "general"),
        naming.scope(kinds.WORKSPACE, "t", "general"),
        naming.scope(kinds.PERSON, "t", "general"),
        naming.scope(kinds.PERSON, "t", "\ud800"),
    ]
    assert len({scope.tag for scope in scopes}) == len(scopes)
    rotated, tenant = Naming("new", CacheMemory(), former="secret"), naming.tenant(KEY)
    former = naming.scope(kinds.PERSON, tenant, "general")
    assert rotated.former_scope(kinds.PERSON, KEY, "general") == former
    assert rotated.scope(kinds.PERSON, rotated.tenant(KEY), "general") != former
