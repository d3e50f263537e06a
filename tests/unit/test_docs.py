"""The pages are true: what they show runs, and what they name exists and is named completely."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest

from proxy import cli, errors
from proxy.adapters.files.policies import PolicyLibrary
from proxy.adapters.files.settings import SettingsFile
from proxy.cli import serve
from proxy.config import Settings
from proxy.core.planning.life import GATES
from proxy.environment import OF_OTHERS, variable
from proxy.errors import UnabridgedError
from proxy.telemetry import Metrics
from tests.support.clients import Chat, admin, only_session, proxying
from tests.support.upstreams import Model, running

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
API = ROOT / "docs" / "api.md"
OPERATIONS = ROOT / "docs" / "operations.md"
ARCHITECTURE = ROOT / "docs" / "architecture.md"
EPOCHS = ROOT / "docs" / "epochs.md"
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
EXAMPLE_URL = "http://127.0.0.1:8080"


@cache
def text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def everything() -> str:
    return "\n".join(text(page) for page in PAGES)


def source(*, without: str = "") -> str:
    files = (file for file in (ROOT / "proxy").rglob("*.py") if file.name != without)
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text(page), re.DOTALL | re.MULTILINE)


def inline(page: Path) -> list[str]:
    prose = re.sub(r"^```.*?^```", "", text(page), flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"`([^`\n]+)`", prose)


def rows(page: Path, heading: str) -> Iterator[list[str]]:
    """The cells of the rows of a section's tables, without code marks."""
    section = re.split(r"^#+ ", text(page).partition(f"# {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    for line in section.splitlines():
        if line.startswith("| "):
            yield [cell.strip().strip("`") for cell in line.strip("|").split("|")]


def of_each_page(found: dict[Path, list[str]]) -> list[Any]:
    return [pytest.param(each, id=f"{page.name}-{each[:60]}") for page in found for each in found[page]]


# --- commands ---


def commands(page: Path) -> list[str]:
    lines = [
        line for language in ("sh", "") for block in blocks(page, language) for line in block.splitlines()
    ]
    program = re.compile(r"(?:\.venv/bin/)?unabridged (?=[a-z-])")
    return [line.partition("#")[0].strip() for line in [*lines, *inline(page)] if program.match(line)]


@pytest.mark.parametrize("command", of_each_page({page: commands(page) for page in PAGES}))
def test_every_command_line_is_one_that_the_program_takes(command: str) -> None:
    words = shlex.split(command)[1:]
    if len(words) == 1:  # prose may speak of a command without what it takes
        assert words[0] in cli._COMMANDS  # pyright: ignore[reportPrivateUsage]
        return
    module = cli._COMMANDS[words[0]][0]  # pyright: ignore[reportPrivateUsage]
    named = cast("cli.Command", cli.import_module(module))
    parsed = cli._parser(words[0], named).parse_args(words)  # pyright: ignore[reportPrivateUsage]
    assert isinstance(parsed, argparse.Namespace)


def test_every_make_target_that_is_named_exists_and_each_one_for_people_is_named() -> None:
    spoken = [span for page in PAGES for span in (*inline(page), *blocks(page, "sh"))]
    named = {target for span in spoken for target in re.findall(r"(?:^|; )make ([a-z]+)", span, re.MULTILINE)}
    targets = set(re.findall(r"^([a-z]+):", MAKEFILE, re.MULTILINE))
    assert named <= targets
    assert {"install", "demo", "run", "test", "check", "format", "lock", "clean"} <= named


# --- policies ---


@pytest.mark.parametrize("policy", of_each_page({page: blocks(page, "toml") for page in PAGES}))
def test_every_policy_and_settings_file_loads(policy: str, tmp_path: Path) -> None:
    file = tmp_path / "example.toml"
    file.write_text(policy, encoding="utf-8")
    if "[[use]]" in policy:
        SettingsFile.read(file, frozenset()).check(PolicyLibrary())
    else:
        assert PolicyLibrary().load(file).name == "example"


# --- settings ---


def test_every_setting_has_its_row_with_its_default() -> None:
    told = {
        cells[1].partition("`")[0]: cells
        for cells in rows(OPERATIONS, "Settings")
        if "UNABRIDGED_" in cells[1]
    }
    values = {name: field for name, field in Settings.model_fields.items() if not name.endswith("_file")}
    assert told.keys() == {variable(name) for name in values}
    for name, field in values.items():
        default: object = field.default
        if isinstance(default, (str, int, float)) and not isinstance(default, bool):
            assert told[variable(name)][2] == f"{default}".removesuffix(".0"), name


def test_every_flag_of_serve_has_its_row_and_no_other() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    serve.add_arguments(parser)
    flags = {word for action in parser._actions for word in action.option_strings}  # pyright: ignore[reportPrivateUsage]
    told = {cells[0].partition(" ")[0] for cells in rows(OPERATIONS, "Settings") if cells[0].startswith("--")}
    assert told == flags - {"--json"}


def test_every_variable_that_is_named_exists() -> None:
    known = {variable(name) for name in [*Settings.model_fields, *OF_OTHERS]}
    assert set(re.findall(r"UNABRIDGED_[A-Z][A-Z0-9_]+", everything())) <= known


# --- metrics, headers, errors ---


def test_the_metrics_table_is_that_of_the_program() -> None:
    declared = {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in Metrics().registry.collect()
        if not family.name.startswith("process_")  # Prometheus' own
    }
    assert {
        cells[0] for cells in rows(OPERATIONS, "Metrics") if cells[0].startswith("unabridged_")
    } == declared
    assert set(re.findall(r"\bunabridged_[a-z_]+", everything())) <= declared


def test_every_header_that_is_named_exists_and_each_one_is_explained() -> None:
    known = set(re.findall(r"x-unabridged-[a-z-]+[a-z]", source()))
    assert {name.lower() for name in re.findall(r"X-Unabridged-[A-Za-z-]+[a-z]", everything())} == known
    for name in known:
        assert re.search(rf"^\| `{name}` \|", text(API), re.MULTILINE | re.IGNORECASE), name


def test_headers_of_agents_that_are_named_are_those_that_are_read() -> None:
    listing = text(API).partition("Without the first")[2].partition("and any")[0]
    told = {name.lower() for name in re.findall(r"`([A-Za-z_-]+)`", listing)}
    agents = re.search(r"_AGENT_HEADERS = \((.*?)\)", source(), re.DOTALL)
    assert agents
    assert told == set(re.findall(r'b"([a-z_-]+)"', agents[1]))


def _tree(kind: type[UnabridgedError]) -> Iterator[type[UnabridgedError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _tree(each)


def test_the_errors_that_are_told_are_those_that_are_raised() -> None:
    told = {cells[1]: cells[0] for cells in rows(API, "Errors") if cells[0].isdigit()}
    tree = {kind.code: kind for kind in _tree(UnabridgedError)}
    assert told == {code: str(tree[code].status) for code in told}
    used = source(without=Path(errors.__file__).name)
    raised = {
        code
        for code, kind in tree.items()
        if re.search(rf"\b{kind.__name__}\b(\(|$| from)", used, re.MULTILINE)
    }
    assert told.keys() == raised - {"upstream_error"}  # only its kinds are


# --- the life of an epoch ---


def test_the_gates_before_an_epoch_are_those_of_the_program() -> None:
    told = {cells[0]: cells[2] for cells in rows(EPOCHS, "What has to hold before an epoch begins")}
    del told["cause"]
    assert told == {cause: ", ".join(gates) or "none" for cause, gates in GATES.items()}


# --- the map ---


def test_the_glossary_names_classes_where_they_are_and_every_record_of_a_request() -> None:
    told = {
        (name, cells[2])
        for cells in rows(ROOT / "docs" / "glossary.md", "In the code")
        if cells[2].endswith(".py")
        for name in re.findall(r"\w+", cells[0])
    }
    assert [
        (name, module)
        for name, module in told
        if not re.search(rf"^class {name}\b", text(ROOT / "proxy" / module), re.MULTILINE)
    ] == []
    records = re.findall(r"^class (\w+)\(", text(ROOT / "proxy" / "engine" / "flow.py"), re.MULTILINE)
    assert set(records) <= {name for name, _ in told}


def test_every_folder_is_on_the_map() -> None:
    folders = {f"{file.parent.relative_to(ROOT / 'proxy')}/" for file in (ROOT / "proxy").rglob("*.py")}
    assert {cells[0] for cells in rows(ARCHITECTURE, "The map") if cells[0].endswith("/")} == folders - {"./"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_is_named_exists(page: Path) -> None:
    paths = [
        span
        for span in inline(page)
        if re.match(r"(proxy|tests|policies|deploy|requirements|docs)/\S*$", span)
    ]
    assert [path for path in paths if "…" not in path and not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_drawing_names_modules_that_exist(page: Path) -> None:
    drawn = re.findall(r"\b(?:core|engine|http|adapters)/[a-z_]+\.py\b", "\n".join(blocks(page, "")))
    assert [module for module in drawn if not (ROOT / "proxy" / module).exists()] == []


# --- links ---


def anchors(page: Path) -> set[str]:
    """The anchors of headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", text(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_between_the_pages_leads_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", text(page)):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


# --- examples against a running proxy ---


@pytest.fixture
def api_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")


@pytest.mark.parametrize("page", [ROOT / "README.md", API], ids=lambda page: page.name)
@pytest.mark.usefixtures("api_key")
async def test_the_sdk_code_runs(page: Path) -> None:
    for code in blocks(page, "python"):
        assert EXAMPLE_URL in code
        async with running(Model()) as model, proxying(model.url) as url:
            scope: dict[str, Any] = {}
            await asyncio.to_thread(exec, code.replace(EXAMPLE_URL, url), scope)
            scope["client"].close()
            assert model.chats


SMALL = 'extends = "balanced"\nbudget.tokens = 1000\n'


@pytest.fixture
async def told(tmp_path: Path) -> dict[str, Any]:
    """What the admin API says of a session that was pruned, by the heading of its example."""
    policy = tmp_path / "small.toml"
    policy.write_text(SMALL, encoding="utf-8")
    async with running(Model()) as model, proxying(model.url, policy=str(policy)) as url:
        chat = Chat(url)
        async with chat.client:
            chat.messages.append({"role": "system", "content": "You are a helpful assistant."})
            for number in range(12):
                await chat.ask(f"Question {number} about the harbour festival: " + "what then? " * 8)
        one = f"sessions/{(await only_session(url))['id']}"
        parts = {
            "A session": "",
            "A transcript": "/transcript",
            "A view": "/view",
            "An explanation": "/explain",
        }
        return {heading: await admin(url, one + part) for heading, part in parts.items()}


def shape(value: Any) -> Any:
    """The members of objects, at any depth; of a list, those of all its elements together."""
    if isinstance(value, dict):
        return {name: shape(member) for name, member in cast("dict[str, Any]", value).items()}
    return None


def elements(value: Any, *path: str) -> list[dict[str, Any]]:
    for name in path:
        value = value[name]
    return value


async def test_the_examples_of_the_admin_api_have_the_members_of_real_answers(told: dict[str, Any]) -> None:
    examples = {heading: json.loads(_example(heading)) for heading in told}
    for heading, real in told.items():
        assert shape(examples[heading]) == shape(real), heading
    for heading, path in (("A session", "epochs"), ("An explanation", "units"), ("A transcript", "messages")):
        real = {frozenset(each) for each in elements(told[heading], path)}
        assert {frozenset(each) for each in elements(examples[heading], path)} <= real, heading


def _example(heading: str) -> str:
    section = text(API).partition(f"### {heading}\n")[2]
    found = re.search(r"```json\n(.*?)```", section, re.DOTALL)
    assert found, heading
    return found[1]


def test_every_piece_of_json_is_json() -> None:
    assert all(json.loads(block) for page in PAGES for block in blocks(page, "json"))


async def test_the_error_that_is_shown_is_the_one_that_is_answered() -> None:
    (shown,) = (block for block in blocks(API, "json") if block.startswith('{"error"'))
    async with running(Model()) as model, proxying(model.url) as url, httpx2.AsyncClient() as client:
        headers = {"X-Unabridged-Policy": "nope"}
        answer = await client.post(f"{url}/v1/chat/completions", json={"messages": []}, headers=headers)
    assert (answer.status_code, answer.json()) == (400, json.loads(shown))
