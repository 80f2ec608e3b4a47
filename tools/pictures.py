"""Writes the pictures of the documentation, docs/pictures/*.svg: `python -m tools.pictures`.

`--check` writes nothing and exits with 1 if a picture is out of date.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import emberstate as es
from tools.house import house
from tools.nexmark import RESULTS, nexmark
from tools.svg import BACK, INK, OUT, PALE, PAPER, Drawing

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"


def slots() -> str:
    """Keys, key groups and slots; the numbers are computed."""
    groups, parallelism, left, unit = 128, 3, 30, 7.0
    names = es.KeySchema(["string"])
    drawing = Drawing(960, 170, "Keys belong to key groups, key groups to slots")
    drawing.text(left, 20, "group = pmod(xxhash64(key), 128)", anchor="start")
    for name in ("eve", "bob", "ann"):
        group = names.key_group(name, groups)
        x = left + unit * (group + 0.5)
        drawing.text(x, 48, name, bold=True)
        drawing.arrow((x, 54), (x, 78), colour=OUT)
        drawing.text(x, 122, str(group), size=11)
    for slot in range(parallelism):
        owned = es.range_for_slot(groups, parallelism, slot)
        x, width = left + unit * owned.start, unit * (owned.end + 1 - owned.start)
        for group in range(owned.start, owned.end + 1):
            drawing.box(left + unit * group + 0.5, 80, unit - 1, 26, (PALE, "#ffe0b2", "#bbdefb")[slot], "none")
        drawing.line(x + 1, 128, x + width - 1, 128)
        drawing.text(x + width / 2, 146, f"slot {slot}: key groups {owned.start} to {owned.end}")
    return drawing.svg()


def batch() -> str:
    """A micro-batch as a transaction, from the query to its sink and back."""
    columns = {"query": 70, "driver": 250, "slots": 470, "location": 690, "sink": 870}
    titles = ("Spark query", "Driver", "Slots", "Location", "Sink")
    drawing = Drawing(960, 470, "A micro-batch is a transaction")
    for title, x in zip(titles, columns.values(), strict=True):
        drawing.box(x - 66, 10, 132, 28, PALE)
        drawing.text(x, 29, title, bold=True)
        drawing.line(x, 38, x, 460, dashed=True)
    y = 66
    for start, end, text in (
        ("query", "driver", "foreachBatch(rows, 42)"),
        ("driver", "location", "intent: times of batch 42, fixed"),
        ("driver", "slots", "rows; start from checkpoint 16"),
        ("slots", "slots", "hot, rolled back, or restored"),
        ("slots", "slots", "timers and rows, in order of time"),
        ("slots", "location", "delta and output, synced"),
        ("slots", "driver", "files, checksums, counts"),
        ("driver", "location", "manifest 17, created conditionally: the commit"),
        ("driver", "sink", "DataFrame over the stored output, 42"),
        ("driver", "query", "done"),
    ):
        x1, x2 = columns[start], columns[end]
        commit = "commit" in text
        if start == end:
            drawing.box(x1 - 112, y - 17, 224, 24, "#fff8e1")
            drawing.text(x1, y, text, size=12)
        else:
            drawing.arrow((x1, y + 4), (x2, y + 4), colour=OUT if commit else INK)
            middle, width = (x1 + x2) / 2, 6.5 * len(text)
            drawing.box(middle - width / 2, y - 13, width, 15, PAPER, PAPER)  # the dashed lines end before the text
            drawing.text(middle, y - 2, text, size=12, fill=OUT if commit else INK, bold=commit)
        y += 41
    return drawing.svg()


def growth() -> str:
    """A table in the middle of its growth."""
    drawing = Drawing(800, 250, "Growth: buckets move from the primary table to one of twice the size")
    drawing.text(130, 76, "primary, 4 buckets", anchor="end", size=12)
    drawing.text(130, 186, "rehash, 8 buckets", anchor="end", size=12)
    left, width = 140, 80
    for bucket in range(4):
        moved = bucket < 2
        drawing.box(left + width * bucket, 56, width - 4, 30, PALE if moved else "#ffe0b2")
        drawing.text(left + width * (bucket + 0.5) - 2, 76, "moved" if moved else f"b{bucket}")
    for bucket in range(8):
        used = bucket % 4 < 2
        drawing.box(left + width * bucket, 166, width - 4, 30, "#bbdefb" if used else PALE)
        drawing.text(left + width * (bucket + 0.5) - 2, 186, f"b{bucket}" if used else "…")
    for bucket in range(2):
        for target in (bucket, bucket + 4):
            drawing.arrow(
                (left + width * (bucket + 0.5), 88), (left + width * (target + 0.5), 162), colour=BACK, dashed=True
            )
    drawing.text(left + 2 * width, 22, "rehash_index = 2", anchor="start", bold=True, fill=OUT)
    drawing.arrow((left + 2 * width, 28), (left + 2 * width, 52), colour=OUT)
    for y, text in (
        (220, "A bucket b of the primary table goes to b and b + 4 of the rehash table."),
        (238, "Entries are in three regions: primary [2, 4), rehash [0, 2) and rehash [4, 6)."),
    ):
        drawing.text(left, y, text, anchor="start", size=12)
    return drawing.svg()


def snapshot() -> str:
    """A chain before and after a change under a live snapshot."""
    drawing = Drawing(760, 250, "A change under a live snapshot copies the chain down to the entry")
    drawing.text(20, 24, "A snapshot at version 7 is live; ann's total changes from 3 to 4.", anchor="start", size=12)

    def chain(y: float, title: str, entries: list[str], fill: str) -> None:
        drawing.text(120, y + 19, title, anchor="end", size=12)
        for number, entry in enumerate(entries):
            x = 160 + 190 * number
            drawing.arrow((x - 34 if number else 126, y + 15), (x - 2, y + 15))
            drawing.box(x, y, 154, 30, fill)
            drawing.text(x + 77, y + 20, entry)

    chain(50, "before: bucket 12", ["eve  v5: 9", "ann  v3: 3", "bob  v2: 1"], "#ffe0b2")
    chain(120, "after: bucket 12", ["eve  v8: 9", "ann  v8: 4"], "#bbdefb")
    chain(190, "its before-image", ["eve  v5: 9", "ann  v3: 3", "bob  v2: 1"], "#ffe0b2")
    drawing.arrow((504, 135), (560, 135), (617, 150), (617, 187), colour=BACK)
    drawing.text(640, 160, "shared", size=12, anchor="start", fill=BACK)
    return drawing.svg()


#: That of NEXMark once there are results.
ALL: tuple[Callable[[], str], ...] = (house, slots, batch, growth, snapshot, *([nexmark] if RESULTS.is_file() else []))


def outdated() -> list[str]:
    """The pictures whose files are not what they would be made as now."""
    files = {picture.__name__: PICTURES / f"{picture.__name__}.svg" for picture in ALL}
    return [
        picture.__name__
        for picture in ALL
        if not files[picture.__name__].is_file() or files[picture.__name__].read_text(encoding="utf-8") != picture()
    ]


def main(arguments: list[str]) -> int:
    """Write the pictures, or check them."""
    if arguments == ["--check"]:
        names = outdated()
        if names:
            print(f"pictures of the documentation are out of date: {', '.join(names)}. Run python -m tools.pictures")
        return 1 if names else 0
    PICTURES.mkdir(exist_ok=True)
    for picture in ALL:
        (PICTURES / f"{picture.__name__}.svg").write_text(picture(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
