"""``/healthz``, ``/readyz`` and ``/metrics``: what orchestrators and Prometheus ask."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from proxy.errors import StoreUnavailable
from proxy.http.limits import Policies
from proxy.http.server.drain import Drain
from proxy.ports import SessionStore
from proxy.telemetry import Metrics

_EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"


def probe_routes(
    store: SessionStore,
    metrics: Metrics,
    drain: Drain,
    policies: Policies,
) -> list[Route]:
    """The routes; the default policy says whether chats are answered while the store is down.

    Policies that are stale are named where there are any; they make no server unready.
    """

    async def healthz(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def readyz(_: Request) -> Response:
        if not drain.is_ready:
            return JSONResponse({"status": "starting or draining"}, 503)
        stale = policies.stale()
        also = {"stale_policies": stale} if stale else {}
        try:
            await store.ping()
        except StoreUnavailable as error:
            metrics.is_degraded = True
            status = 200 if policies.in_force.default.store.on_fault == "open" else 503
            return JSONResponse({"status": "degraded", "store": error.message, **also}, status)
        metrics.is_degraded = False
        return JSONResponse({"status": "ready", **also})

    async def exposition(_: Request) -> Response:
        return Response(metrics.exposition(), media_type=_EXPOSITION)

    return [Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", exposition)]
