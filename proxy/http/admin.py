"""The admin API: ``/unabridged/v1/…``, JSON, for whoever holds the admin token and nobody else.

A client's own key opens nothing here: without a token it is 401, with anything else 403.
"""

import hmac
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from proxy.core.explain import explain
from proxy.core.jsonvalue import dumps, loads
from proxy.core.plan import Epoch
from proxy.core.records import Node
from proxy.engine.inspection import Inspected, Inspection
from proxy.errors import Forbidden, InvalidType, UnabridgedError, Unauthorized
from proxy.http.front import request_id

PREFIX = "/unabridged/v1"
_MOST = 1_000
_USUAL = 50

Endpoint = Callable[[Request], Awaitable[Mapping[str, Any]]]


class AdminAPI:
    """Sessions for people and scripts."""

    def __init__(self, inspection: Inspection, token: str) -> None:
        self._inspection = inspection
        self._token = token

    def routes(self) -> list[Route]:
        """The API's routes."""
        one = f"{PREFIX}/sessions/{{id}}"
        return [
            self._route(f"{PREFIX}/sessions", self._sessions),
            self._route(one, self._session),
            self._route(f"{one}/transcript", self._transcript),
            self._route(f"{one}/view", self._view),
            self._route(f"{one}/explain", self._explain),
        ]

    def _route(self, path: str, endpoint: Endpoint) -> Route:
        async def guarded(request: Request) -> Response:
            try:
                self._authorise(request)
                content = await endpoint(request)
            except UnabridgedError as error:
                identified = {"X-Request-Id": request_id(request.scope)}
                return JSONResponse(error.body(), error.status, identified)
            return Response(dumps(content), media_type="application/json")

        return Route(path, guarded, methods=["GET"])

    def _authorise(self, request: Request) -> None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if not token:
            raise Unauthorized("The admin API needs the admin token: Authorization: Bearer …")
        if scheme.lower() != "bearer" or not hmac.compare_digest(token.encode(), self._token.encode()):
            raise Forbidden("This is not the admin token.")

    async def _sessions(self, request: Request) -> Mapping[str, Any]:
        found = await self._inspection.newest(_limit(request))
        return {"sessions": [_summary(each) for each in found]}

    async def _found(self, request: Request) -> Inspected:
        return await self._inspection.find(request.path_params["id"])

    async def _session(self, request: Request) -> Mapping[str, Any]:
        found = await self._found(request)
        cycle = self._inspection.cycle(await self._inspection.branch(found))
        told = None
        if cycle is not None:
            told = {
                "user_question": cycle.user_question,
                "agent_messages": cycle.agent_messages,
                "final_answer": cycle.final_answer,
            }
        return {**_summary(found), "current_cycle": told}

    async def _transcript(self, request: Request) -> Mapping[str, Any]:
        found = await self._found(request)
        nodes = await self._inspection.transcript(found, request.query_params.get("tip"))
        head = [{"message": loads(raw), "at": _time(found.session.updated)} for raw in found.session.head]
        return {
            "id": found.id,
            "tip": nodes[-1].hash.hex() if nodes else "",
            "messages": [*head, *map(_told, nodes)],
        }

    async def _view(self, request: Request) -> Mapping[str, Any]:
        found = await self._found(request)
        branch = await self._inspection.branch(found, request.query_params.get("tip"))
        situation, epoch = self._inspection.situation(found, branch)
        budget = situation.budget
        return {
            "id": found.id,
            "tip": branch[-1].hash.hex() if branch else "",
            "epoch": epoch.number if epoch else 0,
            "tokens": budget.real(budget.head + situation.view),
            "budget": budget.tokens,
            "messages": [loads(raw) for raw in self._inspection.view(found, situation)],
        }

    async def _explain(self, request: Request) -> Mapping[str, Any]:
        found = await self._found(request)
        branch = await self._inspection.branch(found, request.query_params.get("tip"))
        situation, _ = self._inspection.situation(found, branch)
        budget, stages = situation.budget, situation.policy.stages
        return {
            "id": found.id,
            "policy": situation.policy.name,
            "stage": self._inspection.stage(situation),
            "usage": round(budget.usage(situation.view), 4),
            "tokens": budget.real(budget.head + situation.view),
            "full_tokens": budget.real(budget.head + sum(situation.chain.tokens)),
            "budget": budget.tokens,
            "ratio": budget.ratio,
            "head_tokens": budget.head,
            "stages": stages.model_dump(),
            "epochs": _epochs(found.epochs),
            "units": explain(situation),
        }


def _limit(request: Request) -> int:
    text = request.query_params.get("limit", str(_USUAL))
    if not (text.isascii() and text.isdigit()):
        raise InvalidType("`limit` must be a number.", param="limit")
    return min(max(int(text[:9]), 1), _MOST)


def _summary(found: Inspected) -> dict[str, Any]:
    session = found.session
    texts = {anchor.text for epoch in found.epochs for gap in epoch.plan.gaps for anchor in gap.anchors}
    standing = found.epochs[-1].plan.gaps if found.epochs else ()
    return {
        "id": found.id,
        "name": session.name,
        "stage": session.stage,
        "tokens": session.tokens,
        "full_tokens": session.full_tokens,
        "budget": session.budget,
        "model": session.model,
        "policy": session.policy,
        "blocked": None,
        "turns": session.turns,
        "exchanges": session.exchanges,
        "prune_count": len(found.epochs),
        "summary_bytes": sum(
            len(anchor.text.encode(errors="replace")) for gap in standing for anchor in gap.anchors
        ),
        "llm_compressions": len(texts),
        "current_cycle": None,
        "epochs": _epochs(found.epochs),
        "created": _time(session.created),
        "updated": _time(session.updated),
    }


def _epochs(epochs: Sequence[Epoch]) -> list[dict[str, Any]]:
    return [
        {
            "id": epoch.id,
            "number": epoch.number,
            "at": _time(epoch.at),
            "stage": epoch.stage,
            "original_count": epoch.original_count,
            "original_tokens": epoch.original_tokens,
            "final_count": epoch.final_count,
            "final_tokens": epoch.final_tokens,
            "removed_count": epoch.removed_count,
            "removed_tokens": epoch.removed_tokens,
            "emergency_mode": epoch.emergency_mode,
            "reason": epoch.reason,
        }
        for epoch in epochs
    ]


def _told(node: Node) -> dict[str, Any]:
    return {
        "message": loads(node.raw),
        "at": _time(node.at),
        "tokens": node.tokens,
        "answer": node.answer,
        "complete": node.complete,
    }


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
