"""The outline of source code: the names of what a text defines, in any of the common languages.

Definitions are found by their shapes, not by a parser: the code in a tool's output is seldom a whole file,
often has line numbers or the prefixes of a diff or a search before each line, and does not name its language.
See docs/decisions/outlines-by-shape.md.
"""

import re
from collections.abc import Iterator

_NAME = r"[A-Za-z_$][\w$]*"
_BEFORE = (
    r"\n(?:[\w./@+-]{1,120}+:\d{1,6}+[:-]|[\w./@+]{1,120}+-\d{1,6}+-)?+[ \t]*+"  # path and line of a search
    r"(?:L?\d{1,6}+(?:[ \t]*+[:|\u2192\u2502]|\t|[ ]{1,2}(?=\S)|-(?=\S|[ ]{2})))?+[ \t]*+"  # line number
    r"(?:[+>|-](?=[ \t\w@#]))?+[ \t]*+(?=[@#*~\w])"  # prefix of a diff or a quotation
)
_MODIFIER = (
    r"export|default|declare|public|private|protected|internal|fileprivate|open|static|final|abstract|sealed"
    r"|override|virtual|async|unsafe|extern|inline|constexpr|const|data|case|partial|readonly|synchronized"
    r"|native|explicit|suspend|operator|pub(?:\([\w: ]{1,20}\))?|@\w+(?:\([^()\n]{0,60}\))?"
)
_MODIFIERS = rf"(?:(?:{_MODIFIER})[ \t]+){{0,6}}"
_ARGUMENTS = r"\([^;{}\n]{0,200}\)"
_GENERIC = r"(?:<[^(){};=\n]{0,80}>)?"
_STATEMENTS = (
    r"if|else|for|foreach|while|switch|match|catch|with|when|until|unless|return|await|yield|throw|throws|new"
    r"|delete|case|goto|assert|raise|print|import|from|del|do|try|in|not|and|or|sizeof|typeof|using|lock|super"
    r"|elif|elsif|synchronized|function|func|fn|fun|def"
)
_TYPE = (
    rf"(?!(?:{_STATEMENTS})\b)[A-Za-z_][\w:.]*{_GENERIC}(?:\[\])?(?:[ \t]+[A-Za-z_][\w:<>]*){{0,3}}[ \t*&]+"
)
_SHAPES = (
    (
        rf"{_MODIFIERS}(?:class|interface|@interface|struct|enum(?:[ \t]+class)?|union|trait|record|protocol"
        rf"|object|actor|module|mixin|namespace|type|typealias|impl{_GENERIC}(?:[ \t]+[\w:<>]+[ \t]+for)?)"
        rf"[ \t]+(?P<class>{_NAME})(?=[ \t]*(?:[{{(:<=;\[]|$|(?:extends|implements|with|where|for|struct"
        r"|interface|func|map)\b))"
    ),
    (
        rf"{_MODIFIERS}(?:defp?|defmacro|func(?:[ \t]*\([^()\n]{{0,80}}\))?|fn|fun{_GENERIC}|function\*?|sub)"
        rf"[ \t]+(?:\w+[.:])*(?P<function>{_NAME}[?!]?)(?=[ \t]*(?:[(<\[{{=:]|$|->|do\b))"
    ),
    (
        r"(?:@\w+[ \t]+)*(?:(?:public|private|protected|internal|static|final|abstract|override|virtual"
        r"|async|inline|extern|constexpr|sealed|native)[ \t]+){1,6}(?:<[^<>\n]{1,60}>[ \t]+)?"
        rf"(?:[\w.:]+{_GENERIC}(?:\[\])*[?*&]*[ \t]+[*&]*)?(?P<method>{_NAME})[ \t]*\("
    ),
    (  # a type, or nothing, and a name before the first bracket; then a semicolon or a block
        r"(?=[^(){};=\n]*+\([^;{}\n]*+(?:[;{]|\n[ \t]*\{))(?:"
        # as in C: a type, a name, arguments and a block
        rf"{_TYPE}(?:\w+::)?(?P<typed>~?{_NAME})[ \t]*{_ARGUMENTS}"
        r"(?:[ \t]*(?:const|noexcept|override|throws[ \t]+[\w., ]+))*[ \t]*\n?[ \t]*\{"
        # as in a header or an interface: a type, a name, and arguments with their types
        rf"|{_TYPE}(?P<declared>{_NAME})[ \t]*"
        r"\((?:void|(?:[\w:<>\[\]]++[ \t*&]++\w++(?:\[\])?(?:,[ \t]*)?){1,12})?\)"
        r"(?:[ \t]*(?:const|noexcept|throws[ \t]+[\w., ]+))*[ \t]*;[ \t]*$"
        # a method in JavaScript, or a shell function
        rf"|(?:(?:async|static|get|set)[ \t]+|\*)?(?!(?:{_STATEMENTS})\b)(?P<member>{_NAME})"
        rf"[ \t]*{_ARGUMENTS}"
        r"[ \t]*(?::[ \t]*[^{}\n]{1,60})?\{[ \t]*$)"
    ),
    (
        rf"(?:export[ \t]+)?(?:const|let|var)[ \t]+(?P<assigned>{_NAME})(?:[ \t]*:[^=\n]{{0,80}})?[ \t]*="
        r"[ \t]*(?:async[ \t]*)?(?:function\b|\([^()\n]{0,200}\)[^=\n]{0,60}=>|\w+[ \t]*=>)"
    ),
    rf"#[ \t]*define[ \t]+(?P<macro>{_NAME})",
    (
        rf"(?=[^=\n]*+=){_MODIFIERS}(?:(?:val|let|var)[ \t]+)?(?:[\w<>\[\].:]+[ \t]+){{0,2}}"
        r"(?P<constant>_?[A-Z][A-Z0-9_]{2,})[ \t]*(?::[^=\n]{0,60})?=(?!=)"
    ),
    rf"{_MODIFIERS}const[ \t]+(?:\w+[ \t]+)?(?P<const>[A-Z]\w+)[ \t]*=",
    (
        r"(?:it|test|describe|context)(?:\.\w+)?[ \t]*\(?[ \t]*(?P<quote>['\"`])(?P<test>[^'\"`\n]{3,60})"
        r"(?P=quote)[ \t]*(?:,|do\b)"
    ),
)
_DEFINED = re.compile(f"{_BEFORE}(?:{'|'.join(_SHAPES)})", re.MULTILINE)
"""A definition behind the end of a line: a search skips to that character, but not to the start of a line."""
_KINDS = {
    "class": "class",
    "function": "function",
    "method": "function",
    "typed": "function",
    "declared": "function",
    "member": "function",
    "assigned": "function",
    "macro": "constant",
    "constant": "constant",
    "const": "constant",
    "test": "test",
}
_CODE = re.compile(r"[({=:;]")
_BODY = re.compile(r"[ \t]*[{(:<=]")
"""What must follow a lower-case class name, so that "a type of boat" is not a definition."""
_SHORTEST = 3
_EVERYWHERE = frozenset(
    """main func function default constructor setUp tearDown setup teardown toString equals hashCode
    initialize init new self""".split()
)
"""Names that occur in most programs, and so do not identify any."""


def definitions_in(text: str) -> Iterator[tuple[str, str]]:
    """Yield the kind and name of each class, function, constant and test that a text defines, in order."""
    text = f"\n{text}"
    for match in _DEFINED.finditer(text) if _CODE.search(text) else ():
        shape = match.lastgroup or ""
        kind, name = _KINDS[shape], match[shape]
        is_prose = kind == "class" and name[0].islower() and not _BODY.match(text, match.end())
        if is_prose or len(name) < _SHORTEST or name in _EVERYWHERE or name.startswith("__"):
            continue
        is_test = kind == "function" and name.lower().startswith("test")
        yield "test" if is_test else kind, name
