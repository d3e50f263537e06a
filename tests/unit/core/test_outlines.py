"""What source code defines, in a dozen languages, as tools show it."""

from __future__ import annotations

import json

import pytest

from proxy.core.dialects.chat.messages import Content
from proxy.core.extraction.outlines import definitions_in
from proxy.core.extraction.reading import read
from tests.support.conversations import Sent, calling, result, user
from tests.support.timing import Work, growth

SOURCES = {
    "python": (
        """MAX_BOATS = 3
_DEPTH: int = 4
class Quay(Base):
    LOW = 1
    async def moor_boat(self, boat: Boat) -> None:
        if boat:
            return berth(boat)
def test_moor_boat() -> None:
""",
        "class: Quay; function: moor_boat; constant: MAX_BOATS, _DEPTH, LOW; test: test_moor_boat",
    ),
    "java": (
        """public final class Quay<T> extends Base implements Moorable {
    private static final int MAX_BOATS = 3;
    public Quay(int depth) {
    @Override
    protected Map<String, List<T>> berths(final String who) throws IOException {
        if (full()) { return none(who); }
        throw new Refusal(who);
    int count(int depth);
interface Moorable {
public record Boat(String name) {}
""",
        "class: Quay, Moorable, Boat; function: Quay, berths, count; constant: MAX_BOATS",
    ),
    "typescript": (
        """export default class Crane extends Base {
  private lift(load: number): void {
  async drop(load) {
    while (load) {
export const hoist = async (load: number): Promise<void> => {
export interface Berth {
type Tide = "low" | "high";
export const MAX_LOAD = 3;
describe("a crane", () => {
  it('lifts it', async () => {
""",
        "class: Crane, Berth, Tide; function: lift, drop, hoist; constant: MAX_LOAD; test: a crane, lifts it",
    ),
    "go": (
        """const MaxDepth = 3
type Harbour struct {
func (h *Harbour) Moor(b Boat) error {
	for i := 0; i < 3; i++ {
	go func() {
func TestMoor(t *testing.T) {
""",
        "class: Harbour; function: Moor; constant: MaxDepth; test: TestMoor",
    ),
    "rust": (
        """pub struct Quay<'a> {
pub(crate) enum Tide { Low }
impl<T> Moor for Quay<T> {
    pub async fn berth(&self) -> u32 {
const MAX: usize = 3;
pub trait Mooring {
""",
        "class: Quay, Tide, Mooring; function: berth; constant: MAX",
    ),
    "c": (
        """#define BUF_SIZE 3
struct boat {
static int moor(struct boat *b, int n)
{
  while (n) {
    printf("moored");
char *name_of(const struct boat *b) {
int release(int n);
""",
        "class: boat; function: moor, name_of, release; constant: BUF_SIZE",
    ),
    "c++": (
        """namespace harbour {
class Quay : public Base {
void Quay::moor(const Boat& b) const {
std::vector<int> berths(int n) {
""",
        "class: harbour, Quay; function: moor, berths",
    ),
    "c#": (
        """public sealed class Quay : IQuay
    public const int MaxBoats = 3;
    public async Task<List<Boat>> MoorAsync(Boat boat)
""",
        "class: Quay; function: MoorAsync; constant: MaxBoats",
    ),
    "ruby": (
        """module Harbour
  class Quay < Base
    def moor!(boat)
    def self.berth
    it "moors a boat" do
""",
        "class: Harbour, Quay; function: moor!, berth; test: moors a boat",
    ),
    "php": (
        "final class Quay extends Base {\n    public function moor(Boat $b): void {\nfunction berth() {\n",
        "class: Quay; function: moor, berth",
    ),
    "kotlin": (
        "data class Boat(val name: String)\n    const val MAX = 3\n    suspend fun moor(b: Boat): Int {\n",
        "class: Boat; function: moor; constant: MAX",
    ),
    "swift": (
        "public struct Quay: Codable {\n    static let MAX = 3\n    func moor(_ b: Boat) -> Int {\n",
        "class: Quay; function: moor; constant: MAX",
    ),
    "shell": ("moor_boat() {\nexport QUAY_DIR=/srv\n", "function: moor_boat; constant: QUAY_DIR"),
}


def outline(text: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for kind, name in definitions_in(text):
        found.setdefault(kind, set()).add(name)
    return found


@pytest.mark.parametrize("language", SOURCES)
def test_what_source_code_defines_is_found(language: str) -> None:
    source, names = SOURCES[language]
    groups = (group.partition(": ") for group in names.split("; "))
    assert outline(source) == {kind: set(found.split(", ")) for kind, _, found in groups}


@pytest.mark.parametrize(
    "shown",
    [
        "    12\tdef moor_boat(self):",
        "12: def moor_boat(self):",
        "12|    def moor_boat(self):",
        "  12\u2192    def moor_boat(self):",
        "12-def moor_boat(self):",
        "src/quay.py:12:def moor_boat(self):",
        "src/quay.py-12-def moor_boat(self):",
        "+    def moor_boat(self):",
        "-def moor_boat(self):",
        ">   def moor_boat(self):",
    ],
)
def test_lines_of_a_listing_a_search_or_a_diff_are_read(shown: str) -> None:
    assert outline(f"x\n{shown}\n    return 3\n") == {"function": {"moor_boat"}}


@pytest.mark.parametrize(
    "text",
    [
        "The class of boats is big: see there.",
        "class struggle is a thing = old",
        "type of boat: a barge",
        "I like (very much) the bridge; you too.",
        "function of the bridge (in winter)",
        "Please call me (Anna): yes.",
        "if moored(boat) {\nreturn berth(boat);\nelse if (x) {\nfor (;;) {\nnew Quay(3);\n",
        "- object: a boat (old)",
    ],
)
def test_prose_and_statements_define_nothing(text: str) -> None:
    assert outline(text) == {}


def test_code_in_arguments_and_in_results_is_read() -> None:
    def names(message: Sent) -> set[str]:
        reading = read(Content.of(json.dumps(message).encode()))
        return {
            fact.value for _, facts in reading.facts for fact in facts if fact.kind in ("class", "function")
        }

    code = "class Quay:\n    def moor(self):\n        return 3\n"
    assert names(calling("c", arguments=json.dumps({"path": "quay.py", "content": code}))) == {"Quay", "moor"}
    assert names(result("c", code)) == {"Quay", "moor"}
    assert names(user(f"Look at this:\n```\n{code}```\nPlease mend it.")) == {"Quay", "moor"}


HARD = (
    "public static ",
    "int a, ",
    "List<",
    "a b ",
    "fn a.",
    "@a(",
    "void f(",
    "\t",
    "12 ",
    "a:1:",
    "x",
    "A",
    "*",
    "{(",
    "\n",
    "const a = (",
    "it('",
)


@pytest.mark.parametrize("piece", HARD)
@pytest.mark.parametrize("before", ["", "int f(", "def ", "const "])
def test_time_grows_as_the_text_does(before: str, piece: str) -> None:
    def reading(length: int) -> Work:
        text = f"{before}{piece * (length // len(piece))};({{\n" + f"{before}{piece * 10}\n" * (length // 100)
        return lambda: [*definitions_in(text)]

    assert growth(reading, 10_000, 40_000) < 8
