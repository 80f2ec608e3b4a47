"""The types of columns, by Spark's names: parsed from a schema string, without Spark.

>>> parse_schema("amounts array<decimal(10,2)> not null")
(Column(name='amounts', type=DataType('array<decimal(10,2)>'), nullable=False),)
"""

from __future__ import annotations

import dataclasses
import re
from typing import Final, NoReturn

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
    """A type: its kind, and what it is made of."""

    kind: str
    items: tuple[DataType, ...] = ()
    fields: tuple[Column, ...] = ()
    precision: int = 0
    scale: int = 0

    @property
    def name(self) -> str:
        """Spark's name of the type."""
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
        """The column in a schema, or the field in a struct."""
        return f"{_quoted(self.name)}{separator}{self.type.name}{'' if self.nullable else ' not null'}"


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[^\W\d]\w*", name) else f"`{name.replace('`', '``')}`"


def schema_text(columns: tuple[Column, ...]) -> str:
    """The schema as a string that `parse_schema` reads."""
    return ", ".join(column.text(" ") for column in columns)


def parse_schema(text: str) -> tuple[Column, ...]:
    """The columns of a schema such as "card string, amount double"."""
    parser = _Parser(text)
    columns = parser.columns(end="", separator=False)
    check_columns(columns, f"schema {text!r:.200}")
    return columns


def parse_type(text: str) -> DataType:
    """The type of a name such as "array<int>".

    >>> parse_type("MAP<string, struct<a: int, `b c`: Numeric(5)>>").name
    'map<string,struct<a:int,`b c`:decimal(5,0)>>'
    """
    parser = _Parser(text)
    parsed = parser.type()
    parser.expect("")
    return parsed


def check_columns(columns: tuple[Column, ...], where: str) -> None:
    """Refuse a schema without columns, or with one twice."""
    names = [column.name for column in columns]
    if not names:
        raise StateDeclarationError(f"{where} has no columns")
    for column in columns:
        if column.type.kind == "void" and not column.nullable:
            what = f"{where}: column {column.name!r} is void not null, so it could hold nothing"
            raise StateDeclarationError(what, column=column.name)
    for name in names:
        if names.count(name) > 1:
            what = f"{where} has column {name!r} twice: give one of them another name"
            raise StateDeclarationError(what, column=name)


class _Parser:
    """One pass over the tokens of a schema; a token is (kind, text), the last one ("", "")."""

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise StateDeclarationError(
                f'a schema is a string such as "card string, amount double", found {text!r:.100}'
            )
        self.text = text
        self.tokens: list[tuple[str, str]] = []
        for quoted, word, comment, mark, other in _TOKEN.findall(text):
            if other:
                self.fail(f"{other!r} has no place in it; names with other characters stand in backquotes")
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
        """Columns up to `end`; between name and type a colon may stand, and in a struct does."""
        found: list[Column] = []
        while True:
            if self.peek() not in ("word", "name"):
                self.fail(f"a column's name was expected, found {self.shown()}")
            name = self.take()[1]
            if self.peek() == ":":
                self.take()
            elif separator and self.peek() not in ("word",):
                self.fail(f"a colon was expected after {name!r}, found {self.shown()}")
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
        """One type."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail(f"types are nested more than {MAX_DEPTH} deep")
        if self.peek() != "word":
            self.fail(f"a type was expected, found {self.shown()}")
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
                self.fail("of intervals only those of days and less are of one length; use interval day to second")
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
                self.fail("a map has no keys that are void")
            self.expect(",")
            value = self.type()
            self.expect(">")
            return DataType("map", (key, value))
        if word == "struct":
            self.expect("<")
            fields = self.columns(">", separator=True)
            check_columns(fields, f"a struct in schema {self.text!r:.200}")
            return DataType("struct", (), fields)
        return self.fail(f"{word!r} is no type that rows can have; there are {_TYPES_HELP}")

    def decimal(self, precision: int, scale: int) -> DataType:
        """A decimal within Spark's bounds."""
        if not (1 <= precision <= 38 and 0 <= scale <= precision):
            self.fail(f"decimal({precision},{scale}) is none: precision is 1 to 38, scale at most precision")
        return DataType("decimal", precision=precision, scale=scale)

    def numbers(self, most: int) -> tuple[int, ...]:
        """Numbers in parentheses."""
        self.expect("(")
        found: list[int] = []
        while True:
            kind, text = self.take()
            if kind != "word" or not text.isdecimal() or len(found) == most:
                self.fail(f"at most {most} numbers were expected in parentheses, found {text!r}")
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
            self.fail(f"{kind or 'the end'} was expected, found {self.shown()}")
        self.take()

    def expect_word(self, word: str) -> None:
        if self.word() != word:
            self.fail(f"{word} was expected, found {self.shown()}")
        self.take()

    def shown(self) -> str:
        return repr(self.tokens[self.at][1]) if self.peek() else "the end"

    def fail(self, why: str) -> NoReturn:
        raise StateDeclarationError(f"schema {self.text!r:.200} cannot be read: {why}")
