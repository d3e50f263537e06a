"""How often a cache of tool results would have answered in recorded sessions, and how often rightly.

    make bench-tools DATA="*.jsonl.gz"

Each session is read as the proxy reads it. Before each recorded call the cache is asked; its answer is
compared with the result that was really returned, byte for byte: *right*, or *stale*. Nothing is really
served, so each call is judged in the recorded world. The rules are what a person would write who has read
the names of the tools; `--policy` takes others. A session of several recordings in a row (``segments``) is
told as one, and the world of the later one may differ, which counts as stale. `--apart` takes each
recording by itself.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from proxy.adapters.files.policies import PolicyLibrary
from proxy.adapters.tokens import TiktokenCounter
from proxy.core.conversation.messages import TOOL_ROLES, chain_hashes, read_message, root_hash
from proxy.core.dialects.chat.dialect import CHAT
from proxy.core.dialects.chat.messages import Content
from proxy.core.formats.json import dumps
from proxy.core.policy.sections import Tool
from proxy.core.tool_cache.cache import ToolCache, ToolRules
from proxy.core.tool_cache.derive import derive, initial, text_of

EXCHANGES = (3, 10, 1_000)
"""For how long results are kept."""
AIRLINE_WRITES = ("book_*", "update_*", "cancel_*", "send_certificate")
BFCL_READS = (
    *("get_*", "view_*", "list_*", "find_*", "estimate_*", "display*", "check_*", "search_*"),
    *("ls", "cat", "grep", "find", "wc", "sort", "tail", "du", "diff", "pwd"),
)
BFCL_PURE = ("compute_*", "mean", "logarithm", "liter_to_gallon", "gallon_to_liter", "echo", "calculate")
BFCL_WRITES = (
    *("place_*", "cancel_*", "add_*", "remove_*", "book_*", "set_*", "fund_*", "withdraw_*", "create_*"),
    *(
        "edit_*",
        "close_*",
        "resolve_*",
        "delete_*",
        "send_*",
        "post_*",
        "purchase_*",
        "register_*",
        "update_*",
    ),
    *(
        "pressBrakePedal",
        "releaseBrakePedal",
        "startEngine",
        "lockDoors",
        "fillFuelTank",
        "activateParkingBrake",
    ),
    *(
        "retweet",
        "comment",
        "mention",
        "rm",
        "rmdir",
        "cd",
        "touch",
        "mv",
        "cp",
        "mkdir",
        "*login",
        "*logout",
    ),
    *("authenticate_*", "contact_*"),
)
HARMLESS = ("think", "transfer_to_human_agents", "verify_*", "retrieve_*")


def rules_for(name: str, exchanges: int, *, invalidated: bool) -> tuple[Tool, ...]:
    """What a person would write down for a file's tools; without ``invalidated`` writes empty nothing."""
    is_airline = "airline" in name
    writes = AIRLINE_WRITES if is_airline else BFCL_WRITES
    reads = ("get_*", "search_*", "list_*") if is_airline else BFCL_READS
    pure = ("calculate",) if is_airline else BFCL_PURE
    kept = {"cache_exchanges": exchanges, "serve": True}
    emptied = {"invalidated_by": writes} if invalidated else {"pure": True}
    known = (
        HARMLESS if invalidated else (*HARMLESS, "*")
    )  # a tool without any rule empties all that is served
    return tuple(
        Tool.model_validate(each)
        for each in (
            *({"match": match, **kept, "pure": True} for match in pure),
            *({"match": match, **kept, **emptied} for match in reads),
            *({"match": match} for match in known),
        )
    )


@dataclass
class Tally:
    """What became of recorded calls."""

    calls: int = 0
    right: int = 0
    stale: int = 0
    again: int = 0
    """Tokens of the calls that are answered rightly, and of their results."""
    tokens: int = 0
    """Tokens of all calls and results."""
    prompts: int = 0
    """Prompt tokens of the requests that come after calls which are all answered rightly."""
    tools: Counter[str] = field(default_factory=Counter[str])

    def row(self, *name: str) -> str:
        answered = max(self.calls, 1)
        cells = (
            *name,
            f"{self.calls:,}",
            f"{self.right:,} ({self.right / answered:.1%})",
            f"{self.stale:,} ({self.stale / answered:.1%})",
            f"{self.again:,} of {self.tokens:,} ({self.again / max(self.tokens, 1):.1%})",
            f"{self.prompts:,}",
        )
        return f"| {' | '.join(cells)} |"


def sessions(path: Path, *, apart: bool) -> Iterator[list[dict[str, Any]]]:
    """The messages of each recording."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            told = json.loads(line)
            messages, starts = told["messages"], [*(told.get("segments") or [0]), len(told["messages"])]
            if apart:
                yield from (messages[start:end] for start, end in pairwise(starts))
            else:
                yield messages


def play(messages: Sequence[dict[str, Any]], rules: ToolRules, tally: Tally, count: TiktokenCounter) -> None:
    """Read one session, asking the cache before each call."""
    raws = [dumps(message) for message in messages]
    contents = [Content.of(raw) for raw in raws]
    read = [read_message(content) for content in contents]
    answers = _results(contents)
    onto, prompt = initial(rules), 0
    for place, hash_after in enumerate(chain_hashes((each.identity for each in read), root_hash())):
        content, asked = contents[place], onto.cache
        size = count.count(content.countable())
        prompt += size
        tally.tokens += size if read[place].calls or content.role in TOOL_ROLES else 0
        are_right, again = list[bool](), tally.again
        for call_id, tool, arguments in content.calls:
            came = answers.get((place, call_id))
            are_right.append(_judge(asked, tool, arguments, came, tally, count))
            asked = asked.after_serving(tool, arguments) if are_right[-1] else asked.after_call(tool)
        if are_right and all(are_right):
            tally.prompts += prompt + tally.again - again
        onto = derive(onto, [(read[place], raws[place], hash_after)], CHAT)


def _judge(
    cache: ToolCache, tool: str, arguments: str, came: str | None, tally: Tally, count: TiktokenCounter
) -> bool:
    tally.calls += 1
    fresh = cache.answer(tool, arguments)
    if fresh is None or came is None:
        return False
    is_right = fresh.text == came
    tally.right += is_right
    tally.stale += not is_right
    tally.again += (count.count(came) + count.count(f"{tool}\n{arguments}")) if is_right else 0
    tally.tools[f"{'right' if is_right else 'stale'} {tool}"] += 1
    return is_right


def _results(contents: Sequence[Content]) -> dict[tuple[int, str], str]:
    """The text that answered each call, by the place of its message and its id."""
    callers, found = dict[str, int](), dict[tuple[int, str], str]()
    for place, content in enumerate(contents):
        callers.update({call_id: place for call_id, _, _ in content.calls})
        caller, text = callers.get("".join(content.result_of)), text_of(content)
        if content.role in TOOL_ROLES and caller is not None and text is not None:
            found.setdefault((caller, "".join(content.result_of)), text)
    return found


def main() -> None:
    """Print a row for each file and set of rules."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="+", type=Path, help="recorded sessions, .jsonl.gz")
    parser.add_argument("--policy", help="a policy file, instead of the built-in rules")
    parser.add_argument("--apart", action="store_true", help="take each recording of a session for itself")
    parser.add_argument("--by-tool", action="store_true", help="also list the tools that were answered")
    args = parser.parse_args()
    count = TiktokenCounter()
    print("| file | rules | calls | right | stale | tokens of these | prompts after these |")
    print("|---|---|---|---|---|---|---|")
    for path in args.data:
        name = path.name.partition(".")[0]
        chosen = {
            f"{exchanges:,} exchanges, {told}": rules_for(name, exchanges, invalidated=invalidated)
            for exchanges in EXCHANGES
            for told, invalidated in (("writes empty", True), ("all pure", False))
        }
        if args.policy:
            chosen = {args.policy: PolicyLibrary().load(args.policy).tools}
        for told, rules in chosen.items():
            tally = Tally()
            for messages in sessions(path, apart=args.apart):
                play(messages, ToolRules(rules), tally, count)
            print(tally.row(name, told))
            if args.by_tool:
                print("\n".join(f"    {each} {number}" for each, number in tally.tools.most_common()))


if __name__ == "__main__":
    main()
