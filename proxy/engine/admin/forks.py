"""Forks: a branch of a session copied into a session of its own, so that both go on independently.

A fork copies what its branch needs and nothing else: the messages with their token counts, and of each lane
the epochs that lie wholly before the fork. Keeps law 6 (isolated): a fork belongs to the caller whose session
it was made from, and its name is valid for that caller only.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from proxy.core.conversation.messages import chain_hashes, read_message, root_hash
from proxy.core.conversation.records import HiddenCalls, Node, Session, Turn
from proxy.core.conversation.units import units_of
from proxy.core.dialects.dialect import Dialect
from proxy.core.planning.plan import Epoch
from proxy.engine.admin.inspection import Branch, Inspected, Inspection
from proxy.engine.intake.naming import SESSION_HEADER, Naming, readable, session_header
from proxy.errors import InvalidSessionId, InvalidValue, NothingToChange, SessionExists
from proxy.ports import NAMED, Clock, SessionKey, SessionStore


@dataclass(frozen=True)
class Forks:
    """Creates sessions from branches."""

    store: SessionStore
    inspection: Inspection
    naming: Naming
    clock: Clock
    wait_written: Callable[[SessionKey], Awaitable[None]]
    """Returns once the turns of the session that this process has answered are written."""

    async def fork(
        self, found: Inspected, tip: str | None = None, at: int | None = None, name: str | None = None
    ) -> Inspected:
        """Create a session with the messages of a branch up to number ``at`` inclusive (default: all).

        Raises NotFound for an unknown tip, InvalidValue for a number that does not exist or
        that parts the results of parallel calls, InvalidSessionId for a name that no header can carry,
        SessionExists if the name is taken, and NothingToChange if the session has no messages.
        """
        await self.wait_written(found.key)
        whole = await self.inspection.branch(found, tip)
        dialect = self.inspection.dialect_of(found.session)
        branch = await asyncio.to_thread(_up_to, dialect, whole.nodes, at)
        key, shown = self._place(found, name)
        start = root_hash() if key.sid == NAMED else branch[0].parent
        nodes = await asyncio.to_thread(_chained, dialect, branch, start)
        there = await self.store.session(key)
        if there is not None:
            answers = sum(node.answer and node.complete for node in nodes)
            as_forked = there.created, answers, nodes[-1].hash
            if key == found.key or (there.updated, there.turns, there.tip) != as_forked:
                raise SessionExists  # a fork with these messages that has had no turn may be written again
        ttl = self.inspection.policy_of(found.session).store.ttl
        copies = {old.hash: new.hash for old, new in zip(branch, nodes, strict=True)}
        in_lane = await self._copy_epochs(found, key, branch, copies, ttl)
        hidden = [replace(found.hidden[old], hash=new) for old, new in copies.items() if old in found.hidden]
        session = await asyncio.to_thread(self._session, found, shown, nodes, in_lane, hidden)
        # Not headerless: a request with these answers continues the original session, never the fork.
        turn = Turn(session=session, nodes=nodes, advances_tip=True, headerless=False)
        for each in hidden:
            await self.store.keep_hidden(key, each, ttl, begins=True)
        if pins := [copies[each] for each in found.session.pins if each in copies]:
            await self.store.pin(key, pins, ttl)
        await self.store.record(key, turn, ttl)
        if whole.injection:  # last: without a fork, the next session of its name would get it
            await self.store.inject(key, whole.injection.digest, whole.injection.raw, ttl)
        return await self.inspection.read(key)

    def _place(self, found: Inspected, name: str | None) -> tuple[SessionKey, str]:
        """Return the fork's key, and the name by which its caller finds it.

        The fork of a session that is named by a header is named by a header too, because messages have
        different places in the chains of the two kinds of session. Raises InvalidSessionId.
        """
        tenant = found.session.tenant
        if name is None and found.key.sid != NAMED:
            key = SessionKey(found.key.tag, secrets.token_hex(8))
            return key, self.naming.issue(tenant, key)
        sent = f"fork-{secrets.token_hex(8)}" if name is None else name
        header = session_header({SESSION_HEADER: sent.encode()})  # as a client sends it
        if header is None:
            raise InvalidSessionId
        return self.naming.named(tenant, header), readable(header)

    async def _copy_epochs(
        self,
        found: Inspected,
        key: SessionKey,
        branch: Sequence[Node],
        copies: Mapping[bytes, bytes],
        ttl: float,
    ) -> tuple[Epoch, ...]:
        """Write the fork's epochs: those within the branch, with the chain hashes of its ``copies``.

        Returns the epochs of the lane of the latest turn.
        """
        in_lane: tuple[Epoch, ...] = ()
        for lane in await self.store.lanes(found.key):
            written, parents = list[Epoch](), {""}
            for epoch in await self.store.epochs(found.key, lane):
                is_within = epoch.depth <= len(branch) and branch[epoch.depth - 1].hash == epoch.reach
                if is_within and epoch.parent in parents:
                    parents.add(epoch.id)
                    reach, begun_at = copies[epoch.reach], copies.get(epoch.begun_at, b"")
                    copy = replace(epoch, reach=reach, begun_at=begun_at)
                    await self.store.begin_epoch(key, copy, len(written), ttl, begins=True)
                    written.append(copy)
            if lane == found.session.lane:
                in_lane = tuple(written)
        return in_lane

    def _session(
        self,
        found: Inspected,
        name: str,
        nodes: Sequence[Node],
        epochs: tuple[Epoch, ...],
        hidden: Sequence[HiddenCalls],
    ) -> Session:
        """Return the fork's session record, as if its newest request had ended with these messages."""
        before, now = found.session, self.clock.now()
        fork = Inspected("", found.key, before, epochs, {each.hash: each for each in hidden})
        branch = Branch(self.inspection, fork, nodes)
        return replace(
            before,
            name=name,
            former=(),
            created=now,
            updated=now,
            turns=0,
            tip=nodes[-1].hash,
            stage=branch.stage,
            tokens=branch.tokens,
            full_tokens=branch.full_tokens,
            exchanges=branch.situation.chain.exchanges,
            newest_from=b"",
            newest_to=b"",
            newest_key="",
            forked_at=nodes[-1].hash,
            pins=(),
            blocked="",
        )


def _up_to(dialect: Dialect, branch: Sequence[Node], at: int | None) -> Sequence[Node]:
    """Return the part of a branch that is copied. An incomplete answer at its end is left out.

    Raises NothingToChange if no message is left, and InvalidValue if there is no message ``at``, or
    if some of the results of parallel calls stand before its end and others after it.
    """
    if branch and not branch[-1].complete:
        branch = branch[:-1]
    if not branch:
        raise NothingToChange("The session has no messages.")
    if at is None:
        return branch
    if at >= len(branch):
        raise InvalidValue(f"The messages are 0 to {len(branch) - 1}.", param="at")
    messages = [read_message(dialect.read(node.raw)) for node in branch]
    unit = next(each for each in units_of(messages) if at < each.end)
    # Calls of the last message may be open: whoever goes on with the fork answers them.
    called = {call for message in messages[unit.start : at] for call in message.calls}
    answered, later = (
        {call for message in messages[start:end] for call in message.result_of}
        for start, end in ((unit.start, at + 1), (at + 1, unit.end))
    )
    if (called - answered) & later:
        raise InvalidValue(
            f"Message {at} stands between results that belong together: "
            f"fork at {unit.start} or at {unit.end - 1}.",
            param="at",
        )
    return branch[: at + 1]


def _chained(dialect: Dialect, branch: Sequence[Node], start: bytes) -> tuple[Node, ...]:
    """Return the messages of a branch with the hashes of a chain that begins with ``start``."""
    hashes = chain_hashes((read_message(dialect.read(node.raw)).identity for node in branch), start)
    parents = [start, *hashes]
    return tuple(
        replace(node, hash=chain_hash, parent=parent, reply=None)
        for node, chain_hash, parent in zip(branch, hashes, parents, strict=False)
    )
