"""Runs a program of ours where only loopback is: whoever asks for another machine is told no, and noted.

    python -m tests.supply.offline NOTES serve --upstream …

Python's own sockets are watched by an audit hook. Loops written in C (uvloop) are not seen by it, but their
users ask the proxy of the environment first: whoever starts this names one that notes them.
"""

from __future__ import annotations

import ipaddress
import sys
from pathlib import Path
from typing import Any, cast

from proxy.config import is_loopback


def main() -> None:
    """Watch, then run."""
    notes = Path(sys.argv[1])

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        host = _asked_for(event, arguments)
        if host is not None and not is_loopback(host):
            with notes.open("a", encoding="utf-8") as file:
                file.write(f"{event} {host}\n")
            raise OSError(f"no network: {event} {host}")

    sys.addaudithook(watch)
    _import_everything()
    from proxy.cli import main as program  # noqa: PLC0415 - what it imports is watched

    sys.exit(program(sys.argv[2:]))


def _asked_for(event: str, arguments: tuple[Any, ...]) -> str | None:
    """The other machine; None for what stays on this one."""
    if event == "socket.getaddrinfo":
        host = arguments[0]
        name = host.decode() if isinstance(host, bytes) else host
        return None if not name or _is_numeric(name) else name
    if event in {"socket.connect", "socket.sendto"} and isinstance(arguments[1], tuple):
        return str(cast("tuple[object, ...]", arguments[1])[0])
    return None


def _is_numeric(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _import_everything() -> None:
    import importlib  # noqa: PLC0415
    import pkgutil  # noqa: PLC0415

    import proxy  # noqa: PLC0415

    for module in pkgutil.walk_packages(proxy.__path__, "proxy."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


if __name__ == "__main__":
    main()
