"""Column types under Spark's names, and the parser of schema strings. Needs no Spark.

>>> parse_schema("amounts array<decimal(10,2)> not null")
(Column(name='amounts', type=DataType('array<decimal(10,2)>'), nullable=False),)
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Final, NoReturn

from emberstate.errors import StateDeclarationError

_SIMPLE: Final = {
    "tinyint": "tinyint",
    "byte": "tinyint",
    "smallint": "smallint",
    "short": "smallint",
    "int": "int",
    "integer": "int",
    "bigint": "bigint",
    "long": "bigint",
    "float": "float",
    "real": "float",
    "double": "double",
    "string": "string",
    "binary": "binary",
    "boolean": "boolean",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ltz": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
    "void": "void",
}
_TYPES_HELP: Final = (
    "tinyint, smallint, int, bigint, float, double, string, binary, boolean, date, timestamp, timestamp_ntz, "
    "decimal(p,s), interval day to second, array<…>, map<…,…>, struct<name:type,…>"
)
_TOKEN: Final = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^\W\d]\w*|\d+)|'((?:[^'\\]|\\.)*)'|([<>(),:])|(\S))")
MAX_DEPTH: Final = 50


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class DataType:
    """A type: its kind and its parameters."""

    kind: str
    items: tuple[DataType, ...] = ()
    fields: tuple[Column, ...] = ()
    precision: int = 0
    scale: int = 0

    @property
    def name(self) -> str:
        """Spark's name for the type."""
        if self.kind == "decimal":
            return f"decimal({self.precision},{self.scale})"
        if self.kind == "struct":
            return f"struct<{','.join(field.text(':') for field in self.fields)}>"
        if self.items:
            return f"{self.kind}<{','.join(item.name for item in self.items)}>"
        return self.kind

    def __repr__(self) -> str:
        return f"DataType({self.name!r})"


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """A named column, or a field of a struct."""

    name: str
    type: DataType
    nullable: bool = True

    def text(self, separator: str) -> str:
        """Return the column as a schema string writes it, or the field as a struct does."""
        return f"{_quoted(self.name)}{separator}{self.type.name}{'' if self.nullable else ' not null'}"


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[^\W\d]\w*", name) else f"`{name.replace('`', '``')}`"


def schema_text(columns: tuple[Column, ...]) -> str:
    """Return the schema string of the columns; `parse_schema` reads it."""
    return ", ".join(column.text(" ") for column in columns)


def parse_schema(text: str) -> tuple[Column, ...]:
    """Return the columns of a schema such as "card string, amount double"."""
    parser = _Parser(text)
    columns = parser.columns(end="", separator=False)
    check_columns(columns, f"schema {text!r:.200}")
    return columns


def parse_type(text: str) -> DataType:
    """Return the type that a name such as "array<int>" stands for.

    >>> parse_type("MAP<string, struct<a: int, `b c`: Numeric(5)>>").name
    'map<string,struct<a:int,`b c`:decimal(5,0)>>'
    """
    parser = _Parser(text)
    parsed = parser.type()
    parser.expect("")
    return parsed


def check_columns(columns: tuple[Column, ...], where: str) -> None:
    """Reject a schema that has no columns, two of one name, or one that no value fits."""
    names = [column.name for column in columns]
    if not names:
        raise StateDeclarationError(f"{where} has no columns", option="schema")
    for column in columns:
        if column.type.kind == "void" and not column.nullable:
            what = f"{where}: column {column.name!r} is void not null, and no value fits that"
            raise StateDeclarationError(what, column=column.name)
    for name in names:
        if names.count(name) > 1:
            what = f"{where} has two columns {name!r}: rename one of them"
            raise StateDeclarationError(what, column=name)


class _Parser:
    """Recursive descent over the tokens of a schema. A token is (kind, text); the last one is ("", "")."""

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise StateDeclarationError(
                f'a schema must be a string such as "card string, amount double", found {text!r:.100}',
                option="schema",
                found=type(text).__qualname__,
            )
        self.text = text
        self.tokens: list[tuple[str, str]] = []
        for quoted, word, comment, mark, other in _TOKEN.findall(text):
            if other:
                self.fail(f"unexpected {other!r}; put a name with such characters in backquotes", found=other)
            if quoted:
                self.tokens.append(("name", quoted.replace("``", "`")))
            elif word:
                self.tokens.append(("word", word))
            else:
                self.tokens.append((mark, mark) if mark else ("comment", comment))
        self.tokens.append(("", ""))
        self.at = 0
        self.depth = 0

    def columns(self, end: str, separator: bool) -> tuple[Column, ...]:
        """Read columns up to the token `end`. A colon may follow a name; with `separator`, errors ask for it."""
        found: list[Column] = []
        while True:
            if self.peek() not in ("word", "name"):
                self.fail_at("a column name")
            name = self.take()[1]
            if self.peek() == ":":
                self.take()
            elif separator and self.peek() not in ("word",):
                self.fail_at(f"a colon after {name!r}")
            type_ = self.type()
            nullable = True
            if self.word() == "not":
                self.take()
                self.expect_word("null")
                nullable = False
            if self.word() == "comment":
                self.take()
                self.expect("comment")
            found.append(Column(name, type_, nullable))
            if self.peek() != ",":
                break
            self.take()
        self.expect(end)
        return tuple(found)

    def type(self) -> DataType:
        """Read one type."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail(f"types are nested more than {MAX_DEPTH} deep", expected=MAX_DEPTH)
        if self.peek() != "word":
            self.fail_at("a type")
        word = self.take()[1].lower()
        made = self._made(word)
        self.depth -= 1
        return made

    def _made(self, word: str) -> DataType:
        if word in _SIMPLE:
            return DataType(_SIMPLE[word])
        if word in ("varchar", "char", "character"):
            self.numbers(1)
            return DataType("string")
        if word in ("decimal", "dec", "numeric"):
            precision, scale = (*self.numbers(2), 0)[:2] if self.peek() == "(" else (10, 0)
            return self.decimal(precision, scale)
        if word == "interval":
            parts = [self.take()[1].lower()]
            if self.word() == "to":
                self.take()
                parts.append(self.take()[1].lower())
            if parts[0] not in ("day", "hour", "minute", "second"):
                self.fail("intervals of months and years vary in length; use interval day to second", found=parts[0])
            return DataType("interval day to second")
        if word == "array":
            self.expect("<")
            item = self.type()
            self.expect(">")
            return DataType("array", (item,))
        if word == "map":
            self.expect("<")
            key = self.type()
            if key.kind == "void":
                self.fail("a map key cannot be void", found="void")
            self.expect(",")
            value = self.type()
            self.expect(">")
            return DataType("map", (key, value))
        if word == "struct":
            self.expect("<")
            fields = self.columns(">", separator=True)
            check_columns(fields, f"a struct in schema {self.text!r:.200}")
            return DataType("struct", (), fields)
        return self.fail(f"{word!r} is not a column type; use one of {_TYPES_HELP}", found=word)

    def decimal(self, precision: int, scale: int) -> DataType:
        """Return a decimal type within Spark's limits."""
        if not (1 <= precision <= 38 and 0 <= scale <= precision):
            found = f"decimal({precision},{scale})"
            self.fail(f"{found} is out of range: precision is 1 to 38, scale 0 to precision", found=found)
        return DataType("decimal", precision=precision, scale=scale)

    def numbers(self, most: int) -> tuple[int, ...]:
        """Read one to `most` numbers in parentheses."""
        self.expect("(")
        found: list[int] = []
        while True:
            kind, text = self.take()
            if kind != "word" or not text.isdecimal() or len(found) == most:
                self.fail(f"expected at most {most} numbers in parentheses, found {text!r}", found=text)
            found.append(int(text))
            if self.peek() != ",":
                break
            self.take()
        self.expect(")")
        return tuple(found)

    def peek(self) -> str:
        return self.tokens[self.at][0]

    def word(self) -> str:
        kind, text = self.tokens[self.at]
        return text.lower() if kind == "word" else ""

    def take(self) -> tuple[str, str]:
        token = self.tokens[self.at]
        self.at = min(self.at + 1, len(self.tokens) - 1)
        return token

    def expect(self, kind: str) -> None:
        if self.peek() != kind:
            self.fail_at(kind or "the end")
        self.take()

    def expect_word(self, word: str) -> None:
        if self.word() != word:
            self.fail_at(word)
        self.take()

    def fail_at(self, expected: str) -> NoReturn:
        """Raise for the current token."""
        found = self.tokens[self.at][1]
        shown = repr(found) if self.peek() else "the end"
        self.fail(f"expected {expected}, found {shown}", expected=expected, found=found)

    def fail(self, why: str, expected: Any = None, found: Any = None) -> NoReturn:
        raise StateDeclarationError(
            f"schema {self.text!r:.200} cannot be read: {why}", option="schema", expected=expected, found=found
        )
