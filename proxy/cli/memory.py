"""`unabridged memory …`: show what is remembered, restore it, forget it, maintain it."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial

from rich.console import RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from proxy.cli.client import AdminApi, Json, add_server_option
from proxy.cli.sessions import export, not_shown
from proxy.cli.terminal import (
    CommandError,
    UsageError,
    confirm,
    facts,
    minute,
    notes,
    path,
    positive,
    printable,
    table,
    tell,
    words,
)
from proxy.core.formats.json import dumps
from proxy.core.text.cutting import one_line

_LIMIT, _FOUND = 50, 5
EVERY = 100_000
"""The most memories, and items, that the server lists."""
_OF_ITEMS = {
    "show": "an item, where it comes from, and what became of it if it was put away",
    "log": "what became of an item",
    "restore": "take an item back that was archived or superseded",
}
_WHOM = ("scope", "session", "person")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a verb and its object."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    listing = verbs.add_parser("list", help="memories, and their newest items")
    number = partial(positive, most=EVERY)
    listing.add_argument("--limit", metavar="N", type=number, default=_LIMIT, help=f"how many ({_LIMIT})")
    search = verbs.add_parser("search", help="items by their words, best first")
    search.add_argument("query", metavar="QUERY", help="what is looked for")
    search.add_argument("-k", metavar="N", type=number, default=_FOUND, help=f"how many ({_FOUND})")
    exporting = verbs.add_parser("export", help="all that is remembered, a line of JSON for each memory")
    exporting.add_argument("-o", "--output", metavar="FILE", type=path, help="instead of stdout")
    for each in (listing, search, exporting):
        each.add_argument("--scope", metavar="ID", help="of one memory alone")
    of_items = {verb: verbs.add_parser(verb, help=purpose) for verb, purpose in _OF_ITEMS.items()}
    for each in of_items.values():
        each.add_argument("item", metavar="ITEM", help="its id")
    forget = verbs.add_parser("forget", help="forget an item, or all of a memory, a session or a person")
    whom = forget.add_mutually_exclusive_group(required=True)
    whom.add_argument("item", metavar="ITEM", nargs="?", help="its id")
    whom.add_argument("--scope", metavar="ID", help="a whole memory")
    whom.add_argument("--session", metavar="SESSION", help="what was learned from a session")
    whom.add_argument("--person", metavar="NAME", help="a person's memory, and what they said elsewhere")
    forget.add_argument("--tenant", metavar="ID", help="whose person, where several have one of the name")
    forget.add_argument("--yes", action="store_true", help="do not ask")
    maintain = verbs.add_parser("maintain", help="do now what the daily run does")
    for each in (listing, search, exporting, *of_items.values(), forget, maintain):
        add_server_option(each)


def run(args: argparse.Namespace) -> int:
    """Ask the server, and show the answer. Raises CommandError."""
    for name in (*_WHOM, "tenant"):  # an empty variable must not mean all of them
        if getattr(args, name, None) == "":
            raise UsageError(f"what follows --{name} is empty")
    with AdminApi.of(args) as api:
        if args.verb == "export":
            every = {"k": str(EVERY)}
            listed: Json = {} if args.scope else api.memory(every)
            names = [args.scope] if args.scope else [each["id"] for each in listed["scopes"]]
            found = (api.memory({"scope": name, **every}) for name in names)
            lines = (dumps({**each["scopes"][0], "items": each["items"]}) + b"\n" for each in found)
            export(b"".join(lines), args.output)
            for line in _left_out(listed):
                notes().print(line)
            return 0
        answer = _answer(args, api)
        tell(args, answer, _shown(args.verb, answer), wraps=args.verb not in ("list", "search"))
    left = "unread" if args.verb == "forget" else "failed"
    return int(bool(answer.get(left)))


def _shown(verb: str, answer: Json) -> Iterator[RenderableType]:
    match verb:
        case "list" | "search":
            yield from listing(answer, with_scopes=verb == "list")
        case "show" | "restore":
            yield from item(answer)
        case "log":
            yield log(answer)
        case "forget":
            items = f"forgotten: {words(answer['items'])} items"
            yield items if answer["forgotten"] else "nothing was remembered of it"
            if unread := answer.get("unread"):
                yield f"memories left as they are, since they or their workspaces cannot be read: {unread}"
        case _:
            yield facts(answer.items())


def _answer(args: argparse.Namespace, api: AdminApi) -> Json:
    of_scope = {"scope": args.scope} if getattr(args, "scope", None) else {}
    match args.verb:
        case "list":
            return api.memory({"k": str(args.limit), **of_scope})
        case "search":
            return api.memory({"query": args.query, "k": str(args.k), **of_scope})
        case "show":
            return api.item(args.item)
        case "log":
            return api.item(args.item, "/log")
        case "restore":
            return api.restore_item(args.item)
        case "forget":
            named = {name: value for name in _WHOM if (value := getattr(args, name))}
            if args.tenant and "person" not in named:
                raise UsageError("--tenant says whose --person is meant")
            if not args.yes and sys.stdin.isatty():
                what = args.item or " ".join(f"{name} {value}" for name, value in named.items())
                confirm(f"Forget {one_line(what, 200)} for good?", "not forgotten")
            return api.forget(args.item, **named, **({"tenant": args.tenant} if args.tenant else {}))
        case _:
            return _maintain(api)


def listing(answer: Json, *, with_scopes: bool) -> Iterator[RenderableType]:
    """Yield scopes with the numbers of their items, and one line per item."""
    if not (answer["scopes"] or answer["enabled"]):
        yield "memory is off: a policy turns it on with enabled = true under [memory]"
        return
    if with_scopes:
        rows = [
            (each["id"], each["kind"], one_line(each["name"], 40), each["items"], each["archived"])
            for each in answer["scopes"]
        ]
        yield table(("memory", "of a", "name", ">items", ">archived"), rows)
        yield ""
    items = [
        (
            each["id"],
            one_line(each["text"], 80),
            each["kind"],
            each["trust"],
            each["state"],
            each["importance_score"],
            each["access_count"],
            minute(each["created_at"]),
        )
        for each in answer["items"]
    ]
    yield table(("item", "text", "kind", "said by", "state", ">score", ">uses", "since"), items)
    if answer["said"]:
        said = [
            (minute(each["at"]), one_line(each["name"], 40), one_line(each["text"], 120))
            for each in answer["said"]
        ]
        yield ""
        yield table(("at", "said by", "text"), said)
    yield from _left_out(answer)


def _left_out(answer: Json) -> Iterator[str]:
    """Yield why memories are not shown, and their ids, by which they can be forgotten."""
    left_out: list[Json] = answer.get("left_out", [])
    yield from not_shown(("memory", "memories"), Counter(each["reason"] for each in left_out))
    yield from (f"  {each['id']}" for each in left_out)


def item(answer: Json) -> Iterator[RenderableType]:
    """Yield an item with its source and its archive record."""
    source, archived = answer["source"], answer["archived"]
    yield facts(
        (name, value if isinstance(value, (bool, float, int)) else printable(words(value)))
        for name, value in answer.items()
        if name not in ("source", "archived")
    )
    yield ""
    whose = source["name"] or source["role"]
    yield f"said by {one_line(whose)} on {source['at']} in {source['session']}"
    yield from (printable(line) for line in source["passage"].splitlines())
    if archived:
        yield ""
        yield facts(archived.items())


def log(answer: Json) -> RenderableType:
    """Return the log of an item, oldest event first."""
    rows = [
        (each["at"], each["event"], each["before"], each["after"], each["details"])
        for each in answer["events"]
    ]
    return table(("at", "event", ">before", ">after", "details"), rows)


def _maintain(api: AdminApi) -> Json:
    """Run the maintenance with a progress bar; return the counts. Raises CommandError if it broke off."""
    console, done = notes(), dict[str, int]()
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("memories", total=None)
        for done in api.maintain():
            progress.update(task, completed=done["scopes"], total=done["of"])
    if not done or done["scopes"] < done["of"]:
        raise CommandError("the run broke off: the server's log says why")
    return done
