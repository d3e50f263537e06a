"""Distinguishes lines that a program wrote from sentences that a person wrote.

It goes by frames (tags, labels, prompts, status lines of terminals) where a text has any, and by what the
lines look like. In doubt a line counts as a person's, so that nothing a person says is lost as output.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, compress, groupby, pairwise
from typing import NamedTuple

from proxy.core.text.lexicon.binding import FIRM, PLAIN
from proxy.core.text.lexicon.words import (
    ENDS,
    EXAMPLES,
    FUNCTION_WORDS,
    LIGHT_WORDS,
    MODAL_WORDS,
    OBSERVATIONS,
    OUTPUTS,
    UNSPACED,
)

# --- what a line is: printed by a program, a person's sentence, or possibly either ---

PROGRAM = re.compile(
    r"^\s*(?://|/\*|\*/|>>>|\.\.\. |\$ |(?:PS )?[A-Z]:\\[^>\n]*>|#!|@\w|def |class |import "
    r"|from \w+ import|return\b|raise |assert |if .*:$|for .*:$|else:|try:|except"
    r"|(?!\d\d?:\d\d\b)\d+[:|]|[+-]{1,3} ?\w*\(|\w+\s*=[^=]|<\/?\w)"
    r"|[{;\\]\s*$|^\s{8,}\S|(?P<call>\w\(\w*\)\s*[.:{]?$)"
)
"""A line of source code, or of a program's output; one that ends with a call may be a person's sentence."""
SYMBOLS = re.compile(r"[{}()\[\];=<>|\\`_]")
_LEVELS = "INFO|WARN|WARNING|ERROR|DEBUG|FATAL|TRACE"
_ROLES = """alert alertdialog article banner blockquote button cell checkbox code columnheader combobox
complementary contentinfo definition dialog document emphasis figure form generic grid gridcell group
heading iframe image img label link list listbox listitem main menu menubar menuitem menuitemcheckbox
menuitemradio navigation option paragraph progressbar radio radiogroup region row rowgroup rowheader search
searchbox section separator slider spinbutton status strong switch tab table tablist tabpanel term text
textbox time toolbar tooltip tree treegrid treeitem"""
_STATES = """active checked clickable disabled editable expanded focusable focused hidden modal pressed
readonly required selected visible"""
_ELEMENT = (
    r"(?:-\s+)?\w+ (?:\".*\" )?(?:\[[\w=-]+\] )*\[ref=\w+\](?: \[[\w=-]+\])*(?::|\s*$)"
    r"|\*?\[\d{1,6}\]\s?</?[a-zA-Z][\w-]*(?:\s[^<>=]*=|>?\s*$|.*(?:/>|</[\w-]+>)\s*+$)"
    rf"|(?:\[(?=[\w-]{{0,11}}\d)[\w-]{{1,12}}\]\s+(?:{'|'.join(_ROLES.split())}|(?=[A-Z]\w*?[a-z][A-Z])\w++)"
    r"|RootWebArea|StaticText|InlineTextBox|LabelText|ListMarker)"
    r"\s+(?P<quote>['\"])(?:(?!(?P=quote)).|(?P=quote)(?=\w))*+(?P=quote)"
    rf"(?:,?\s+(?:(?:{'|'.join(_STATES.split())})(?![\w:=-])|[\w-]+[:=]\s?[^\s,]++))*+\s*$"
)
"""An element of a page: its role (of ARIA) and name, or its tag. Behind either no sentence may follow."""
_APART = r"[^\w:\[]*+"
_THREAD = rf"(?:\[[^\]\n:]{{1,40}}\]{_APART})?"
_LOGGED = (
    r"\[?(?:\d{4}-\d\d-\d\d[T ])?\d\d:\d\d:\d\d(?:[.,]\d++)?(?:Z|[+-]\d\d:?\d\d)?"
    rf"{_APART}{_THREAD}(?:[\w.$/-]++{_APART})?{_THREAD}\[?(?:{_LEVELS})\b"
)
"""A line of a log with its level; of the words before that one at most is no thread in brackets."""
_RECORD = re.compile(
    rf"^\s*+(?:{_ELEMENT}|[-dlcbps](?:[r-][w-][xsStT-]){{3}}[.+@]?\s+(?:\d|-\s|[\w-]+/[\w-]+\s)|{_LOGGED}"
    r"|(?=[^\s:(]*[./])[^\s:(]++[:(]\d+(?:[:,]\d+)?\)?: (?:fatal )?(?:error|warning)(?: \w+\d|\[[\w-]+\])?:"
    r"|Traceback \([\w ]+\):\s*$|File \".*\", line \d++(?:, in \S+)?\s*$"
    r"|at [\w.$<>/]+\([\w.: ]*\)(?: ~?\[.*\])?\s*$"
    r"|diff --git a/.* b/|index [0-9a-f]{6,}\.\.[0-9a-f]|@@ -\d+(?:,\d+)? \+\d|(?:\+\+\+|---) [ab]/\S+\s*$"
    r"|\{\"(?:error\"|type\": ?\"error\").*\}\s*$|[^\[]*+\[type=\w+, input_value=.*\]\s*$)"
)
"""Lines that no person writes: of pages, directory listings, logs, compilers, checks, traces and diffs."""
_FAULT = re.compile(
    rf"^\s*(?:\[(?:{_LEVELS})\]|(?:Caused by: )?(?:(?:\w+\.)+\w*|[A-Z]\w+)(?:Error|Exception)(?:: |\s*$))"
)
"""What begins a line of a trace or a log, and what a person may lay down: `ValueError: never hide it.`"""
_RECORD_OR_SENTENCE = re.compile(
    rf"{_RECORD.pattern}|{_FAULT.pattern}|^\s*(?:\[?\d{{4}}-\d\d-\d\d[T ]\d\d:|\[?\d\d:\d\d:\d\d"
    r"|[-dlcbps](?:[r-][w-][xsStT-]){3}|Traceback \(|File \".*\", line \d|diff --git |(?:\+\+\+|---) [ab]/"
    r"|[\w./@+-]*[./][\w./@+-]*[:-](?:\d+|\[\d+,\d+\])[: -]|(?:\w+\.)*\w*(?:Error|Exception)(?::|\b.*[:(]|$)"
    r"|at [\w.$<>/]+\([\w.: ]*\)|Caused by: |index [0-9a-f]{6,}|@@ -|\+\+\+ |--- [\w./])"
)
"""Those, and lines with which a person may begin a sentence, as with a date or with the place in a file."""
_PRINTED = re.compile(
    rf"^\s*(?:\d{{1,6}}(?:[\u2502\u2192]|\t| {{2,}})|total \d+$|(?:{_LEVELS}|npm ERR!)\b[: ]"
    r"|[-=*_#~+|^.]{4,}\s*$|\|.*\|\s*$"
    r"|[\]}{\[(),;]+\s*$|\"[^\"]+\"\s*:|In \[\d+\]:|Out\[\d+\]:|[\w.-]+@[\w.-]+[: ].*[$#]"
    r"|/?[\w.@+-]*(?:/[\w.@+-]+)+/?\s*$|[\w-]+\.[a-z]{1,5}\s*$|[\w.-]+ ?[:=] \S+$)"
    r"|\b(?:PASSED|FAILED|SKIPPED|XFAIL)\b"
)
_BULLET = re.compile(r"^\s*(?:[-*•·>+#]+|\(?\d{1,3}[.):])\s+")
_PLAIN_WORD = re.compile(r"[\"'(“«¡¿*]*[^\W\d_]+(?:['\u2019-][^\W\d_]+)*[.,;:!?…)\"'”»*]*")
_UNSPACED = re.compile(f"[{UNSPACED}]{{2}}")
_UNSPACED_END = re.compile("[。\uff01\uff1f]$")
_LITTLE = FUNCTION_WORDS | LIGHT_WORDS | MODAL_WORDS
_LOOKED_AT = 2_000
"""Leading characters of a line that are examined; the rest is ignored."""
_MOSTLY, _PARTLY = 0.7, 0.4
"""Least share of plain words in a line that is a sentence, and in one that may be a rule."""
_DIGITS = 0.3
_PRINTED_LINE, _EITHER, _SENTENCE = 1, 0, -1


def _kind(line: str) -> int:
    line = line[:_LOOKED_AT]
    if _RECORD_OR_SENTENCE.match(line):
        return _PRINTED_LINE
    if _reads_as_sentence(_BULLET.sub("", line).strip()):
        return _SENTENCE
    dense = 10 * len(SYMBOLS.findall(line)) > len(line) or sum(map(str.isdigit, line)) > _DIGITS * len(line)
    return _PRINTED_LINE if dense or _PRINTED.search(line) or PROGRAM.search(line) else _EITHER


def is_record(lines: Sequence[str], place: int) -> bool:
    """Whether no person wrote the line there, even if it has wording of rules."""
    if _RECORD.match(lines[place]):
        return True
    beside = (*lines[max(place - 1, 0) : place], *lines[place + 1 : place + 2])
    return _FAULT.match(lines[place]) is not None and any(
        _kind(each) == _PRINTED_LINE and not (_FAULT.match(each) and _binds(each)) for each in beside
    )


def _binds(line: str) -> bool:
    """Whether a line has wording of rules."""
    # Everyday wordings count here too, unlike for rules: they are a person's all the same.
    lower = line.lower()
    return bool(FIRM.search(lower) or PLAIN.search(lower))


def _reads_as_sentence(line: str) -> bool:
    """Whether a person wrote it: mostly words, with a sentence's end, wording of rules or function words."""
    binds = _binds(line)
    if _UNSPACED.search(line) and (binds or _UNSPACED_END.search(line)):
        return True
    words = line.split()
    plain = sum(_PLAIN_WORD.fullmatch(word) is not None for word in words)
    if len(words) < 2 or plain < _PARTLY * len(words):
        return False
    if binds:
        return not PROGRAM.search(line)
    ends = line.rstrip("\"'”»)*")[-1:] in (".", "!", "?", ":", "…")
    says = len(_LITTLE.intersection(line.lower().split())) > 1
    return plain >= _MOSTLY * len(words) and len(words) > 2 and (ends or says)


# --- which lines of a text a program wrote ---

_TAG = re.compile(
    r"<(?P<closes>/?)[\w:-]{0,40}(?:output|stdout|stderr|results?|observation|return_?code|exit_?code|response"
    r"|environment_details)[\w:-]{0,40}"
    r"(?:\s[^<>\n]{0,200})?>",
    re.IGNORECASE,
)
_LABEL = re.compile(
    r"^[ \t]*\[File: [^\n]*\][ \t\r]*$"
    r"|^\[(?P<tool>(?!ask_|plan_|act_|attempt_|new_)\w+)(?: for '[^\0]{0,2000}?')?\] Result:(?!\s*The user\b)"
    rf"|^[ \t#*\[]*(?P<label>(?:{OBSERVATIONS})|(?:{OUTPUTS}))"
    r"(?:[ \t]+(?:of|from|for)\b[^\n:\uff1a]{0,80})?[ \t\])*]*[:\uff1a][ \t*]*(?P<rest>.*)$",
    re.IGNORECASE | re.MULTILINE,
)
"""Among them how Cline and its kin name a tool, but for those that a person answers."""
_SURE = re.compile(OBSERVATIONS, re.IGNORECASE)
_END = re.compile(
    r"^[ \t]*(?:[\[(](?:(?:the|your) )?(?:open file|file|current (?:working )?directory|working directory|cwd"
    r"|command|process|python interpreter|exit(?:ed)?|finished|\d+ (?:more )?lines?)\b.*[\])]"
    r"|[\w.@:~/\\()-]{2,80}[$#>]|\$|>>>|[\w.-]+@[\w.-]+[: ]\S{0,80} ?[$#%>]"
    r"|(?:exit|return)[ _-]?(?:code|status)\b.{0,20}\d+|Process (?:finished|exited)\b.*)[ \t\r]*$",
    re.IGNORECASE | re.MULTILINE,
)
"""Prompts, and status lines of terminals and editors."""
_HEADING = re.compile(r"\s*([^\n:\uff1a]{1,80})")
"""How a text begins: its first line, up to a colon."""
_READ = 200_000
"""Characters above which only the frames of a text are examined."""
_BLANK = re.compile(r"\n[ \t\r]*\n")


def beginning_of(text: str) -> str:
    """The label with which a text begins; without one how its first line begins."""
    found = _LABEL.match(text)
    if found is None or not found["label"]:
        found = _HEADING.match(text)
        return found[1].strip().casefold() if found else ""
    return found["label"].casefold()


def is_sure(label: str) -> bool:
    """Whether only output has this label."""
    return _SURE.fullmatch(label) is not None


class Run(NamedTuple):
    """Consecutive lines that are all output, or all other text."""

    is_output: bool
    text: str


class Lines:
    """The lines of a text, each marked if a program wrote it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._lines = text.split("\n")
        self._starts = [*accumulate((len(line) + 1 for line in self._lines[:-1]), initial=0)]
        self._marked = [False] * len(self._lines)
        self.is_framed: bool = self._mark_tags() | self._mark_labelled()
        if len(text) <= _READ:
            self._mark_printed()

    @property
    def size(self) -> int:
        """Length of the text in characters, without the white space around its lines."""
        return sum(len(line.strip()) for line in self._lines)

    @property
    def marked(self) -> int:
        """How much of that a program wrote."""
        return sum(len(line.strip()) for line in compress(self._lines, self._marked))

    @property
    def is_undivided(self) -> bool:
        """Whether it may be output as a whole, by all but how it begins.

        Behind a sure label come no prompt and no other such label; behind another heading most is printed,
        no line is a sentence (nor what goes on behind the heading), and no paragraph of another kind follows.
        """
        if is_sure(beginning_of(self._text)):
            labels = [
                each for each in _LABEL.finditer(self._text) if each["label"] and is_sure(each["label"])
            ]
            return len(labels) == 1 and _END.search(self._text) is None
        if self.is_framed or 2 * self.marked < self.size or self._is_said_first:
            return False
        rest = compress(self._lines[1:], (not marked for marked in self._marked[1:]))
        last = max(compress(range(len(self._lines)), self._marked), default=0)
        is_followed = _BLANK.search("\n".join(self._lines[last:]).rstrip()) is not None
        return not is_followed and _SENTENCE not in map(_kind, rest)

    @property
    def _is_said_first(self) -> bool:
        """Whether the first line lays something down, or goes on behind its heading as a person does."""
        first = self._text.lstrip().partition("\n")[0][:_LOOKED_AT]
        heading = _HEADING.match(first)
        behind = first[heading.end() :].lstrip(":\uff1a ") if heading else ""
        return _binds(first) or _kind(behind) == _SENTENCE

    @property
    def runs(self) -> Iterator[Run]:
        """The text as runs of output and of other text; blank lines belong to the line before them."""
        sides, side = list[bool](), self._marked[0]
        for marked, line in zip(self._marked, self._lines, strict=True):
            side = marked if line.strip() else side
            sides.append(side)
        for is_output, group in groupby(range(len(sides)), key=sides.__getitem__):
            yield Run(is_output, "\n".join(self._lines[number] for number in group))

    def _mark(self, start: int, end: int) -> None:
        """Mark the lines whose text lies entirely between two offsets."""
        for number in range(max(bisect_right(self._starts, start) - 1, 0), bisect_left(self._starts, end)):
            line, begin = self._lines[number], self._starts[number]
            is_within = start <= begin + len(line) - len(line.lstrip()) and begin + len(line.rstrip()) <= end
            self._marked[number] |= is_within

    def _mark_tags(self) -> bool:
        """Mark text within tags; if there are two closing tags, the first is part of the output."""
        spans, depth = list[tuple[int, int]](), 0
        for tag in _TAG.finditer(self._text):
            if not tag["closes"]:
                spans += [tag.span()] if depth == 0 else []
                depth += 1
            elif spans:
                depth = max(depth - 1, 0)
                spans[-1] = spans[-1][0], tag.end()
        for span in spans:
            self._mark(*span)
        return bool(spans)

    def _mark_labelled(self) -> bool:
        """Mark text from a label to the last prompt after it, or without a prompt the label's paragraph.

        What a label with a tool's name begins goes on to the next one of that kind.

        With prompts and no label, mark the text attached to the last prompt, from the first printed line on.
        """
        text = self._text
        labels = [
            label
            for label in _LABEL.finditer(text)
            if label["label"] is None or _SURE.fullmatch(label["label"]) or _kind(label["rest"]) != _SENTENCE
        ]
        for start, until in pairwise([*(each.start() for each in labels if each["tool"]), len(text)]):
            self._mark(start, until)
        ends = [end.end() for end in _END.finditer(text)]
        nexts = [*(each.start() for each in labels), len(text)]
        for label, until in zip(labels, nexts[1:], strict=True):
            last = ends[bisect_right(ends, until) - 1] if ends else 0
            if not label.end() <= last <= until:
                blank = _BLANK.search(text, label.end(), until)
                last = blank.start() if blank else until
            self._mark(label.start(), last)
        if ends and not labels:
            first = bisect_right(self._starts, ends[-1]) - 1
            while first and self._lines[first - 1].strip():
                first -= 1
            printed = (number for number in range(first) if _kind(self._lines[number]) == _PRINTED_LINE)
            self._mark(self._starts[next(printed, first)], ends[-1])
        return bool(labels or ends)

    def _mark_printed(self) -> None:
        """Mark paragraphs that are mostly printed, except possible sentences at their ends.

        Then mark lines between marked ones, unless one of them is a sentence.
        """
        trimmed = (_SENTENCE,) if self.is_framed else (_SENTENCE, _EITHER)
        lines = zip(self._lines, self._marked, strict=True)
        is_open = [bool(line.strip()) and not marked for line, marked in lines]
        for is_paragraph, group in groupby(range(len(is_open)), key=is_open.__getitem__):
            kinds = {number: _kind(self._lines[number]) for number in group if is_paragraph}
            run = [*kinds]
            while run and kinds[run[-1]] in trimmed:
                run.pop()
            start = next((place for place, number in enumerate(run) if kinds[number] not in trimmed), 0)
            sides = [kinds[number] for number in run[start:] if kinds[number] != _EITHER]
            if sides and 2 * sides.count(_PRINTED_LINE) >= len(sides):
                for number in run[start:]:
                    self._marked[number] = True
        for before, after in pairwise([*compress(range(len(is_open)), self._marked)]):
            between = range(before + 1, after)
            if all(_kind(self._lines[number]) != _SENTENCE for number in between):
                for number in between:
                    self._marked[number] = True


# --- what a text only shows ---

_RULED = re.compile(r"[-=*#~]{2}")
"""Every frame has this or a tag, and most texts neither."""
_FRAMES = (
    re.compile(
        rf"(?:^[ \t]*<|<(?P<ends>/))(?:{EXAMPLES})(?:_\w{{1,40}})?>(?(ends)[ \t\r]*$)",
        re.IGNORECASE | re.MULTILINE,
    ),
    re.compile(
        rf"^[ \t]*[-=*#~]{{2,}}+(?=[ \t\w'\u2019]{{0,40}}(?:{EXAMPLES}))"
        rf"(?P<ends>(?=[ \t\w'\u2019]{{0,40}}(?:{ENDS})))?[ \t\w'\u2019]{{1,80}}[-=*#~]{{2,}}[ \t\r]*$",
        re.IGNORECASE | re.MULTILINE,
    ),
)
"""Tags around an example, of which one begins a line and the other ends one, unlike those that a sentence
names; and lines such as `--- DEMONSTRATION ---`."""


def examples_in(text: str) -> tuple[str, str]:
    """A text without its examples and their frames, and the examples. What nothing closes is no frame."""
    shown = list[str]()
    for frame in _FRAMES if "<" in text or _RULED.search(text) else ():
        own, done, opened = list[str](), 0, list[re.Match[str]]()
        for each in frame.finditer(text):
            if each["ends"] is None:
                opened.append(each)
            elif opened:
                first = opened.pop()
                if not opened:
                    own.append(text[done : first.start()])
                    shown.append(text[first.end() : each.start()])
                    done = each.end()
        text = "\n".join([*own, text[done:]])
    return text, "\n".join(shown)
