"""Write golden_vectors.json: about 10,000 keys and the hashes that a real Spark gives them.

Run from the repository's root, with pyspark and Java installed:

    PYTHONPATH=src:. python -m tests.keygroups.make_golden

The keys follow from a fixed seed. The hashes are fixed for ever: a run that changes an existing line of
the file has found a change in Spark, and is no reason to commit it.
"""

from __future__ import annotations

import json
import random
from typing import Any

from tests.keygroups.golden import (
    GOLDEN_FILE,
    PMOD_SAMPLES,
    SESSION_TIME_ZONE,
    edge_values,
    local_spark,
    random_value,
    spark_hashes,
    to_text,
)

SEED = 20_240_229

#: Source types of the key columns -> number of random keys, beside the edge values.
PLAN: dict[tuple[str, ...], int] = {
    ("bigint",): 900,
    ("int",): 150,
    ("smallint",): 60,
    ("tinyint",): 40,
    ("double",): 700,
    ("float",): 250,
    ("string",): 1300,
    ("binary",): 300,
    ("boolean",): 0,
    ("date",): 500,
    ("timestamp",): 700,
    ("timestamp_ntz",): 500,
    ("decimal(1,0)",): 10,
    ("decimal(10,2)",): 250,
    ("decimal(18,0)",): 200,
    ("decimal(18,18)",): 200,
    ("decimal(19,0)",): 200,
    ("decimal(19,4)",): 250,
    ("decimal(38,0)",): 250,
    ("decimal(38,18)",): 250,
    ("decimal(38,38)",): 150,
    ("string", "bigint"): 400,
    ("bigint", "string"): 200,
    ("bigint", "bigint"): 200,
    ("string", "string"): 200,
    ("binary", "boolean"): 120,
    ("date", "decimal(19,4)"): 150,
    ("int", "float"): 100,
    ("timestamp", "string", "double"): 200,
    ("bigint", "string", "decimal(10,2)"): 200,
    ("timestamp_ntz", "date", "boolean"): 150,
    ("decimal(38,18)", "binary", "smallint"): 150,
    ("string", "string", "string"): 150,
}


def keys_for(sources: tuple[str, ...], count: int, rng: random.Random) -> list[list[str]]:
    """Return the keys of one plan entry as texts, without duplicates, in a fixed order."""
    edges = [list(edge_values(source)) for source in sources]
    if len(sources) == 1:
        rows: list[list[Any]] = [[value] for value in edges[0]]
    else:
        rows = [[rng.choice(values) for values in edges] for _ in range(count // 2)]
        count -= count // 2
    rows += [[random_value(source, rng) for source in sources] for _ in range(count)]
    texts = [[to_text(source, value) for source, value in zip(sources, row, strict=True)] for row in rows]
    return list(map(list, dict.fromkeys(map(tuple, texts))))


def main() -> None:
    """Compute and write the file."""
    spark = local_spark("emberstate-golden-vectors")
    vectors: list[tuple[tuple[str, ...], list[list[str]]]] = []
    for sources, count in PLAN.items():
        # A generator per entry: adding an entry leaves the others' keys as they are.
        keys = keys_for(sources, count, random.Random(f"{SEED} {sources}"))
        rows = [
            [*key, str(hash64)]
            for key, (hash64, _) in zip(keys, spark_hashes(spark, sources, keys), strict=True)
        ]
        vectors.append((sources, rows))
    pmod = [
        [str(hash64), *groups]
        for hash64, groups in spark_hashes(spark, ("bigint",), [[str(n)] for n in range(200)])
    ]
    header = {"spark": spark.version, "session_time_zone": SESSION_TIME_ZONE, "seed": SEED}
    spark.stop()
    # A line per key, so that a change shows as one line; ASCII, so that no editor can normalise a key.
    lines = [
        json.dumps(header)[:-1]
        + ',\n"pmod": '
        + json.dumps([list(PMOD_SAMPLES), *pmod], separators=(",", ":"))
    ]
    entries = []
    for sources, rows in vectors:
        body = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
        entries.append(f'{{"types": {json.dumps(sources)}, "rows": [\n{body}\n]}}')
    lines.append('"vectors": [\n' + ",\n".join(entries) + "\n]}\n")
    GOLDEN_FILE.write_text(",\n".join(lines), encoding="ascii")


if __name__ == "__main__":
    main()
