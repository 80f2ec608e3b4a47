"""The hash against a Spark that runs now, on keys that no file knows."""

from __future__ import annotations

import random
import secrets

import pytest

from emberstate.keygroups import KeySchema
from tests.keygroups.golden import PMOD_SAMPLES, key_of, local_spark, random_value, spark_hashes, to_text
from tests.keygroups.make_golden import PLAN


@pytest.mark.spark
@pytest.mark.long
def test_fresh_keys_hash_as_in_spark() -> None:
    """Catches: a Spark whose hash or casts differ from the release that the golden vectors came from."""
    pytest.importorskip("pyspark")
    seed = secrets.randbits(32)
    rng = random.Random(seed)
    spark = local_spark("emberstate-keygroups-test")
    try:
        for sources in PLAN:
            rows = [[to_text(source, random_value(source, rng)) for source in sources] for _ in range(12)]
            schema = KeySchema(sources)
            for texts, (expected, groups) in zip(rows, spark_hashes(spark, sources, rows), strict=True):
                key = key_of(sources, texts)
                assert expected == schema.hash64(key), f"seed {seed}: {sources} {texts}"
                assert groups == [schema.key_group(key, m) for m in PMOD_SAMPLES], f"seed {seed}: {texts}"
    finally:
        spark.stop()
