"""Whose memory a request has: where its turn is remembered, and what its session is told.

Keeps law 6 (isolated): every name has the caller's tenant in it, and a channel's its workspace.
"""

from typing import NamedTuple

from proxy.core.memory.records import Scope, ScopeKind
from proxy.engine.flow import Envelope
from proxy.engine.intake.naming import Naming
from proxy.ports import SessionKey


class Home(NamedTuple):
    """Where a turn is remembered."""

    tenant: str
    scope: Scope
    name: str
    """As the client named it; for the listing."""
    person: str
    """Whom the request names; empty where it names nobody."""
    workspace: Scope | None = None
    """In which its channel lies."""
    ttl: float | None = None
    """Seconds that a scope lives which is a session's own; others live until they are forgotten."""
    former: tuple[str, ...] = ()
    """The tags of its scopes by the old secret, its own first, while secrets are being rotated."""

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """What is told of: its own scope, and the workspace of a channel."""
        return (self.scope,) if self.workspace is None else (self.scope, self.workspace)


def home_of(naming: Naming, envelope: Envelope, person: str, key: SessionKey, ttl: float) -> Home:
    """The home of a request: its channel's, else its workspace's, else its person's, else its session's.

    ``ttl`` are the seconds that the session lives.
    """
    tenant, channel, workspace = envelope.caller.tenant, envelope.channel, envelope.workspace
    if channel:
        named = [(ScopeKind.CHANNEL, workspace, channel)]
        named += [(ScopeKind.WORKSPACE, workspace)] if workspace else []
    elif workspace:
        named = [(ScopeKind.WORKSPACE, workspace)]
    elif person:
        named = [(ScopeKind.PERSON, person)]
    else:
        named = [(ScopeKind.THREAD, key.tag, key.sid)]
    scopes = [naming.scope(kind, tenant, *names) for kind, *names in named]
    former = [naming.former_scope(kind, envelope.headers, *names) for kind, *names in named]
    return Home(
        tenant=tenant,
        scope=scopes[0],
        name=channel or workspace or person,
        person=person,
        workspace=scopes[1] if len(scopes) > 1 else None,
        ttl=ttl if scopes[0].kind is ScopeKind.THREAD else None,
        former=tuple(scope.tag for scope in former if scope is not None),
    )
