"""The picture of the house: layers and rooms of the package, a row's way out and a restore's way back.

Layers, rooms and imports are read from the source. Where a room stands in the picture, and which rooms the ways lead
through, is written down here and checked: every room has a place, and two rooms of a way know each other by imports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.project.layers import PACKAGE
from tests.project.module_graph import Graph, module_graph

from tools.svg import BACK, OUT, PALE, Drawing

SOURCE = Path(__file__).parents[1] / "src"

#: Layers from the top: the columns of a layer's rooms, or of the layer itself.
ROWS: tuple[Mapping[str, Mapping[str, int]], ...] = (
    {"cli": {"commands": 0, "demo": 1}, "testing": {"": 6}},
    {"spark": {"slot": 0, "driver": 2, "plan": 3, "tables": 4}},
    {"sinks": {"": 2}, "metrics": {"": 5}},
    {
        "runtime": {"operator": 0, "functions": 1, "rows": 3, "windows": 4, "bootstrap": 5, "aggregates": 6},
        "ui": {"views": 7},
    },
    {"checkpoint": {"commit": 2, "files": 3, "restore": 4, "manifest": 5, "history": 1, "read": 6, "offline": 7}},
    {"heap": {"states": 2, "map": 3, "loading": 4, "columns": 5}, "rocksdb": {"": 6}},
    {"state": {"": 1, "ttl": 2, "cells": 3}},
    {"codec": {"": 1}, "storage": {"": 3}},
    {"keygroups": {"": 1}},
)


@dataclass(frozen=True)
class Step:
    """One arrow of a way. Rooms that do not import each other meet in a third one, which both import."""

    start: str
    end: str
    what: str
    through: str = ""


WAY_OUT = (
    Step("spark.plan", "spark.driver", "stages of the pipeline"),
    Step("spark.driver", "spark.slot", "a task per slot, with its rows"),
    Step("spark.slot", "runtime.operator", "record batches over a local socket"),
    Step("runtime.operator", "runtime.functions", "rows and timers, in order of time"),
    Step("runtime.functions", "state", "the function uses its states"),
    Step("state", "heap.states", "a handle finds its table (on RocksDB: its store)"),
    Step("heap.states", "heap.map", "entries change; before-images keep the old ones"),
    Step("heap.map", "checkpoint.files", "the changes of the batch become a delta", through="state"),
    Step("checkpoint.files", "checkpoint.commit", "file names, sizes, checksums"),
    Step("checkpoint.commit", "checkpoint.manifest", "one manifest, created conditionally"),
    Step("checkpoint.commit", "spark.driver", "committed: the output is what is stored"),
    Step("spark.driver", "sinks", "stored parts, read or adopted"),
)
WAY_BACK = (
    Step("checkpoint.manifest", "checkpoint.restore", "names the chain of files of every slot"),
    Step("checkpoint.files", "checkpoint.restore", "entries of the slot's key groups, merged"),
    Step("checkpoint.restore", "heap.loading", "columns of entries (on RocksDB: pairs)", through="state"),
    Step("heap.loading", "heap.map", "tables are filled; the slot is hot"),
)

_STEP, _WIDTH, _LEFT, _TOP, _PITCH, _HEIGHT = 132, 94, 24, 24, 78, 34


def rooms(graph: Graph) -> set[str]:
    """The rooms in the source: packages, one or two levels down, without the name of the whole."""
    parents = {name.rpartition(".")[0] for name in graph}
    names = {name.removeprefix(f"{PACKAGE}.") for name in graph if name in parents and name != PACKAGE}
    return {name for name in names if name.count(".") < 2}


def shown() -> set[str]:
    """The rooms in the picture."""
    return {
        f"{layer}.{room}".rstrip(".") for row in ROWS for layer, columns in row.items() for room in columns
    } | {layer for row in ROWS for layer in row}


def objections(graph: Graph) -> list[str]:
    """Where the picture and the source differ: rooms that only one of them has, steps that no import backs."""
    found = [f"{room} is in the source and not in the picture" for room in sorted(rooms(graph) - shown())]
    found += [f"{room} is in the picture and not in the source" for room in sorted(shown() - rooms(graph))]
    for step in (*WAY_OUT, *WAY_BACK):
        pairs = [(step.start, step.through), (step.end, step.through)] if step.through else [(step.start, step.end)]
        apart = [pair for pair in pairs if not _linked(graph, *pair)]
        found += [f"{one} and {other} do not import each other" for one, other in apart]
    return found


def _linked(graph: Graph, one: str, other: str) -> bool:
    def within(name: str, room: str) -> bool:
        return f"{name}.".startswith(f"{PACKAGE}.{room}.")

    return any(
        (within(name, one) and within(target, other)) or (within(name, other) and within(target, one))
        for name, imported in graph.items()
        for target in imported
    )


def house() -> str:
    """The picture; raises if the source is otherwise."""
    if wrong := objections(module_graph(SOURCE)):
        raise ValueError("the picture of the house is wrong: " + "; ".join(wrong))
    steps = [*((OUT, number, step) for number, step in enumerate(WAY_OUT, 1)),
             *((BACK, number, step) for number, step in enumerate(WAY_BACK, 1))]  # fmt: skip
    bottom = _TOP + len(ROWS) * _PITCH
    drawing = Drawing(1070, bottom + 24 + 20 * len(WAY_OUT), "Rooms of the package, and the way of a row through them")
    places: dict[str, tuple[float, float]] = {}
    for number, row in enumerate(ROWS):
        y = _TOP + number * _PITCH
        for layer, columns in row.items():
            first, last = min(columns.values()), max(columns.values())
            drawing.box(_x(first) - 10, y - 16, _x(last) - _x(first) + _WIDTH + 20, _HEIGHT + 26, PALE, PALE)
            if len(columns) > 1:
                drawing.text(_x(first) - 4, y - 3, layer, size=12, anchor="start", bold=True)
            for room, column in columns.items():
                places[f"{layer}.{room}".rstrip(".")] = (_x(column), y)
                drawing.box(_x(column), y + 2, _WIDTH, _HEIGHT - 2)
                drawing.text(_x(column) + _WIDTH / 2, y + 23, room or layer)
    for colour, number, step in steps:
        _draw(drawing, places[step.start], places[step.end], str(number), colour)
    legends = ((OUT, 0, "A row's way out", WAY_OUT), (BACK, 4, "A restore's way back", WAY_BACK))
    for colour, column, title, way in legends:
        drawing.text(_x(column), bottom + 4, title, anchor="start", fill=colour, bold=True)
        for number, step in enumerate(way, 1):
            y = bottom + 4 + 20 * number
            drawing.disc(_x(column) + 9, y - 4, str(number), colour)
            text = f"{_path(step.start)} → {_path(step.end)}: {step.what}"
            drawing.text(_x(column) + 26, y, text, size=12, anchor="start")
    return drawing.svg()


def _path(room: str) -> str:
    return room.replace(".", "/")


def _x(column: int) -> float:
    return _LEFT + column * _STEP


def _draw(drawing: Drawing, start: tuple[float, float], end: tuple[float, float], number: str, colour: str) -> None:
    (x1, y1), (x2, y2) = start, end
    half, middle = _WIDTH / 2, _HEIGHT / 2 + 1
    if y1 == y2 and abs(x1 - x2) > 2 * _STEP:  # over what is between
        points = [(x1 + 2 * half - 8, y1 + 2), (x1 + 2 * half, y1 - 26), (x2 + half, y2 - 26), (x2 + half, y2 + 2)]
        drawing.arrow(*points, colour=colour)
        drawing.disc((x1 + x2) / 2 + half, y1 - 19, number, colour)
        return
    if y1 == y2:
        side = 1 if x2 > x1 else -1
        a, b = (x1 + half + side * half, y1 + middle), (x2 + half - side * half, y2 + middle)
    elif y2 > y1:
        a, b = (x1 + half, y1 + _HEIGHT), (x2 + half, y2 + 2)
    else:
        a, b = (x1 + half, y1 + 2), (x2 + half, y2 + _HEIGHT)
    drawing.arrow(a, b, colour=colour)
    drawing.disc((a[0] + b[0]) / 2, (a[1] + b[1]) / 2 - (10 if y1 == y2 else 0), number, colour)


