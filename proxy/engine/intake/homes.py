"""Whose memory a request has: where its turn is remembered, and what its session reads.

Keeps law 6 (isolated): every name includes the caller's tenant, and a channel's includes its workspace.
"""

from typing import NamedTuple

from proxy.core.memory.records import Scope, ScopeKind
from proxy.engine.intake.naming import Headers, Naming
from proxy.ports import SessionKey


class MemoryHome(NamedTuple):
    """The scope in which a turn is remembered, and those that it may read."""

    tenant: str
    scope: Scope
    name: str
    """The scope's name from the client, for the listing."""
    person: str = ""
    """The person that the request names; empty where it names nobody."""
    workspace: Scope | None = None
    """The channel's workspace."""
    former: tuple[str, ...] = ()
    """The tags of its scopes under the old secret, its own first, while secrets are being rotated."""

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """The scopes that it reads: its own, and the workspace of a channel."""
        return (self.scope,) if self.workspace is None else (self.scope, self.workspace)


def own_home(naming: Naming, headers: Headers, key: SessionKey, former_tag: str = "") -> MemoryHome:
    """Return the home of a session without a named scope.

    ``former_tag`` is the session's tag under the old secret; empty where that is the one it has.
    """
    tenant = naming.tenant(headers)
    former = naming.former_scope(ScopeKind.THREAD, headers, former_tag or key.tag, key.sid)
    scope = naming.scope(ScopeKind.THREAD, tenant, key.tag, key.sid)
    return MemoryHome(tenant, scope, "", former=(former.tag,) if former else ())


def named_home(
    naming: Naming, headers: Headers, *, channel: str = "", workspace: str = "", person: str = ""
) -> MemoryHome | None:
    """Return the named home for the caller of these headers; None where there is no name.

    It is the channel's, else the workspace's, else the person's.
    """
    if channel:
        named = [(ScopeKind.CHANNEL, workspace, channel)]
        named += [(ScopeKind.WORKSPACE, workspace)] if workspace else []
    elif workspace or person:
        named = [(ScopeKind.WORKSPACE, workspace) if workspace else (ScopeKind.PERSON, person)]
    else:
        return None
    tenant = naming.tenant(headers)
    scopes = [naming.scope(kind, tenant, *names) for kind, *names in named]
    former = [naming.former_scope(kind, headers, *names) for kind, *names in named]
    return MemoryHome(
        tenant=tenant,
        scope=scopes[0],
        name=channel or workspace or person,
        person=person,
        workspace=scopes[1] if len(scopes) > 1 else None,
        former=tuple(scope.tag for scope in former if scope is not None),
    )
