"""What a model is shown when it is asked for the texts of a thread, of a channel and of a workspace."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.clients import KEY, Chats, making_chats
from tests.support.operator import ask
from tests.support.remembering import RememberingModel, item_texts, note, person, remembering
from tests.support.servers import eventually, until
from tests.support.upstreams import running, said

GUILD, BOAT, ARRIVED = "The guild was founded in 1902.", "The boat is late.", "The boat has arrived."
CRANE, MAST = "The crane is red.", "The guild had a mast of steel."
NOTES = {text: note(text) for text in (GUILD, CRANE, MAST, ARRIVED)}
THREAD, CHANNEL, WORKSPACE = "one conversation", "a channel with several", "a workspace with several"


def lasting(task: str, said: list[str]) -> list[str]:
    """Sentences about the guild for the long term, and all others, too, for the short one."""
    sentences: list[str] = re.findall(r"The [^.]+\.", " ".join(said))
    return [each for each in sentences if "guild" in each or "short-term memory" in task]


@dataclass
class Prompt:
    """What the model was shown when it was asked for a text."""

    whole: str

    def part(self, name: str) -> str:
        """What stands in all tags of this name."""
        found: list[str] = re.findall(
            rf"^<{name} \w+>\n(.*?)\n</{name} ", self.whole, re.DOTALL | re.MULTILINE
        )
        return "\n".join(found)

    @property
    def said(self) -> list[str]:
        """What the lines say that it is to be made from."""
        lines = (self.part("transcript") or self.part("texts")).splitlines()
        return [re.sub(r"^\[.{16}\] \w+: ", "", line) for line in lines if "] assistant: " not in line]


@dataclass
class Story:
    """Two channels of a workspace, of which one goes on, and one where nobody says anything of their own."""

    model: RememberingModel
    url: str
    chats: Chats
    steps: dict[str, list[Prompt]] = field(default_factory=dict[str, list[Prompt]])
    """What was asked for in each step."""
    texts: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """What was remembered in the end, by what it is of."""

    def asked(self, step: str, term: str, scope: str, of: str = "") -> Prompt:
        """The one question of a step for a text of this term and scope, which is made from ``of``."""
        asked = f"here the {term} memory of {scope}"
        (found,) = [each for each in self.steps[step] if asked in each.whole and of in " ".join(each.said)]
        return found

    @asynccontextmanager
    async def step(self, name: str, count: int) -> AsyncGenerator[None]:
        """So many texts are asked for."""
        before = len(self.model.asked_for_texts)
        yield
        await eventually(lambda: len(self.model.asked_for_texts) >= before + count)
        self.steps[name] = [*map(Prompt, self.model.prompts(self.model.asked_for_texts)[before:])]

    async def play(self) -> None:
        self.model.replies.extend([said("Noted.")] * 6)
        places = [("harbour", GUILD, BOAT), ("harbour", CRANE), ("yard", MAST)]
        people = [
            person(self.chats, self.url, X_Unabridged_Channel=channel, X_Unabridged_Workspace="fleet")
            for channel, *_ in places
        ]
        async with self.step("begun", 6):
            for place, (chat, (_, *told)) in enumerate(zip(people, places, strict=True)):
                chat.headers["X-Unabridged-Session"] = f"session {place}"
                await chat.ask(" ".join(told))
        await until({GUILD, CRANE, MAST}, self.items)
        async with self.step("maintained", 6):
            await self.maintained()
        async with self.step("gone on", 2):
            await people[0].ask(ARRIVED)
        await until({GUILD, CRANE, MAST, ARRIVED}, self.items)
        async with self.step("maintained again", 4):
            await self.maintained()
        async with self.step("nothing said", 0):
            for chat, workspace in ((person(self.chats, self.url), "void"), (people[1], "fleet")):
                chat.headers |= {"X-Unabridged-Channel": "harbour", "X-Unabridged-Workspace": workspace}
                await chat.ask("```\nA page of a book that somebody wrote.\n```")
            await until("", self.short_text)
            await self.maintained()
            self.texts["void"] = await self.told(workspace="void")

    async def items(self) -> set[str]:
        """What is noted: once it is, its thread was read and is written."""
        return await item_texts(self.url)

    async def maintained(self) -> None:
        assert (await ask(self.url, "POST", "memory/maintain")).json()["failed"] == 0

    async def short_text(self) -> str:
        await self.maintained()
        self.texts["harbour"] = await self.told(channel="harbour", workspace="fleet")
        return self.texts["harbour"]["short"]

    async def told(self, **whose: str) -> dict[str, Any]:
        async with httpx2.AsyncClient(base_url=self.url, headers={"Authorization": KEY}) as client:
            return (await client.get("/unabridged/v1/me/memory", params=whose)).json()


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    async def told(directory: Path) -> Story:
        model, rules = RememberingModel(notes=NOTES, writes=lasting), "channel_every = 100"
        async with (
            running(model),
            remembering(model, directory, rules, upstream_key="operator") as url,
            making_chats() as chats,
        ):
            story = Story(model, url, chats)
            await story.play()
            return story

    return asyncio.run(told(tmp_path_factory.mktemp("texts")))


@pytest.mark.parametrize("term", ["long-term", "short-term"])
def test_a_thread_is_told_from_its_own_messages_with_their_times_and_names(story: Story, term: str) -> None:
    prompt = story.asked("begun", term, THREAD, GUILD)
    assert re.search(rf"^\[\d{{4}}-\d\d-\d\d \d\d:\d\d\] ana: {GUILD} {BOAT}$", prompt.whole, re.MULTILINE)
    assert CRANE not in prompt.whole


def test_the_texts_of_its_channel_and_workspace_are_the_background_of_a_thread(story: Story) -> None:
    for term in ("long-term", "short-term"):
        background = story.asked("gone on", term, THREAD).part("background")
        assert (CRANE in background, MAST in background) == (True, True)
        assert background.index(MAST) < background.index(CRANE)  # the workspace's first
        assert "for understanding alone" in story.asked("gone on", term, THREAD).whole


def test_the_long_text_of_a_thread_is_merged_into_the_one_there_is_and_the_short_one_written_anew(
    story: Story,
) -> None:
    long, short = (story.asked("gone on", term, THREAD) for term in ("long-term", "short-term"))
    assert (long.part("existing"), long.said) == (f"- {GUILD}", [ARRIVED])
    assert (short.part("existing"), short.said) == ("", [f"{GUILD} {BOAT}", ARRIVED])
    assert ("Merge it" in long.whole, "Merge it" in short.whole) == (True, False)


def test_no_text_is_asked_for_of_a_thread_in_which_nobody_said_anything_of_their_own(story: Story) -> None:
    assert not any("book" in each.whole for steps in story.steps.values() for each in steps)


def test_the_short_text_of_a_channel_is_made_from_the_messages_of_all_its_threads(story: Story) -> None:
    assert story.asked("maintained", "short-term", CHANNEL, GUILD).said == [f"{GUILD} {BOAT}", CRANE]
    assert story.asked("maintained again", "short-term", CHANNEL).said == [ARRIVED]


def test_the_short_text_of_a_channel_is_merged_into_its_long_one(story: Story) -> None:
    first, again = (
        story.asked(step, "long-term", CHANNEL, of)
        for step, of in (("maintained", GUILD), ("maintained again", ARRIVED))
    )
    assert (first.said, first.part("existing"), first.part("transcript")) == (
        [GUILD, BOAT, CRANE],
        "",
        "",
    )
    assert (again.said, again.part("existing")) == ([ARRIVED], f"- {GUILD}")


def test_the_texts_of_the_workspace_alone_are_the_background_of_a_channel(story: Story) -> None:
    assert story.asked("maintained", "short-term", CHANNEL, GUILD).part("background") == ""
    background = story.asked("maintained again", "short-term", CHANNEL).part("background")
    assert MAST in background
    assert background.count(CRANE) == 1


def test_where_nothing_new_was_said_the_short_text_of_a_channel_is_empty_and_the_long_one_stays(
    story: Story,
) -> None:
    assert not any(CHANNEL in each.whole for each in story.steps["nothing said"])
    assert (story.texts["harbour"]["short"], story.texts["harbour"]["long"]) == ("", f"- {GUILD}")


def test_the_short_text_of_a_workspace_is_made_from_the_short_texts_of_its_channels_alone(
    story: Story,
) -> None:
    assert sorted(story.asked("maintained", "short-term", WORKSPACE).said) == sorted(
        [GUILD, BOAT, CRANE, MAST]
    )
    again = story.asked("maintained again", "short-term", WORKSPACE)
    assert (sorted(again.said), again.part("existing")) == (sorted([ARRIVED, MAST]), "")


def test_the_long_text_of_a_workspace_is_merged_from_the_long_texts_of_its_channels_alone(
    story: Story,
) -> None:
    again = story.asked("maintained again", "long-term", WORKSPACE)
    assert sorted(again.said) == sorted([GUILD, MAST])
    assert sorted(again.part("existing").splitlines()) == sorted([f"- {GUILD}", f"- {MAST}"])


def test_a_workspace_has_no_background(story: Story) -> None:
    for step in ("maintained", "maintained again"):
        for term in ("long-term", "short-term"):
            assert "background" not in story.asked(step, term, WORKSPACE).whole


def test_a_workspace_without_anything_in_its_channels_has_no_texts(story: Story) -> None:
    assert (story.texts["void"]["long"], story.texts["void"]["short"]) == ("", "")
