"""``/healthz``, ``/readyz`` and ``/metrics``: what orchestrators and Prometheus ask."""

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from proxy.errors import StoreUnavailable
from proxy.ports import SessionStore
from proxy.telemetry import Metrics

_EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"


def probe_routes(
    store: SessionStore,
    metrics: Metrics,
    is_serving: Callable[[], bool],
    opens_on_fault: Callable[[], bool],
    stale_policies: Callable[[], list[str]],
) -> list[Route]:
    """The routes; ``opens_on_fault`` says whether chats are answered while the store is down.

    ``stale_policies`` are named where there are any; they make no server unready.
    """

    async def healthz(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def readyz(_: Request) -> Response:
        if not is_serving():
            return JSONResponse({"status": "starting or draining"}, 503)
        stale = stale_policies()
        told = {"stale_policies": stale} if stale else {}
        try:
            await store.ping()
        except StoreUnavailable as error:
            metrics.is_degraded = True
            why = {"store": error.message}
            return JSONResponse({"status": "degraded", **why, **told}, 200 if opens_on_fault() else 503)
        metrics.is_degraded = False
        return JSONResponse({"status": "ready", **told})

    async def exposition(_: Request) -> Response:
        return Response(metrics.exposition(), media_type=_EXPOSITION)

    return [Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", exposition)]
