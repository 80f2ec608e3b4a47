"""The public names: which package exports which, that each can be imported and says what it is, and that pages and
examples import nothing else.

A name that goes from these lists breaks users' programs; one that comes is a promise. Change them on purpose.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import get_origin

import pytest

from tests.project.markdown import ROOT, blocks, documents

PUBLIC = {
    "emberstate": """
        AggregateFunction AggregatingState AggregatingStateDescriptor BatchKeys ColumnState ContinuousEventTimeTrigger
        ContinuousProcessingTimeTrigger CountTrigger EmberstateError EventTimeSessionWindows EventTimeTrigger
        FsStateBackend FunctionContext GlobalWindow GlobalWindows HeapKeyedStateBackend KeyGroupRange
        KeySchema KeyedBroadcastProcessFunction KeyedCoProcessFunction KeyedProcessFunction KeyedTimer
        ListState ListStateDescriptor MapState MapStateDescriptor MemoryStateBackend NeverTrigger Pipeline
        ProcessWindowFunction ProcessingTimeSessionWindows ProcessingTimeTrigger Progress PurgingTrigger
        ReducingState ReducingStateDescriptor RocksDBStateBackend Row RowType SlidingEventTimeWindows
        SlidingProcessingTimeWindows TimeDomain TimeWindow Trigger TriggerResult TtlConfig TtlTime TtlUpdate
        TtlVisibility TumblingEventTimeWindows TumblingProcessingTimeWindows ValueState ValueStateDescriptor
        WindowAssigner aggregating_state any bootstrap_savepoint broadcast_state codec_for collect column_state count
        distinct every first fold last list_state map_state max mean min pickle_codec range_for_slot read_changes
        read_state reducing_state sum top value_state window
    """,
    "emberstate.checkpoint": """
        ChainPolicy ChangeFeed CheckpointCoordinator CheckpointReader FsStateBackend Manifest
        MemoryStateBackend OperatorSpec RestoreChoices RestoreVerdict RocksDBStateBackend StateBackend
        checkpoint_numbers delete_savepoint read_changes read_checkpoint read_state savepoint_names
    """,
    "emberstate.heap": """
        CopyOnWriteStateMap CopyOnWriteStateMapSnapshot CopyOnWriteStateTable HeapFoldingState
        HeapKeyedStateBackend HeapListState HeapMapState HeapTimerQueue
        HeapValueState IMMUTABLE IncrementalVisitor MutableKind NestedMapsStateTable NestedStateMap
        NestedStateMapSnapshot SnapshotRegistry StateMap StateMapEntry StateMapStatistics StateTable ValueKind
    """,
    "emberstate.metrics": "OpenTelemetryListener PrometheusListener opentelemetry prometheus",
    "emberstate.rocksdb": """
        MemoryBudget RocksDBFoldingState RocksDBKeyedStateBackend RocksDBListState RocksDBMapState
        RocksDBStore RocksDBValueState
    """,
    "emberstate.sinks": """
        ConsoleSink Delivery DeltaSink IcebergSink KafkaSink MemorySink Origin ParquetSink Part PostgresSink Sink Start
        console delta iceberg kafka memory parquet postgres
    """,
    "emberstate.spark": """
        AllWindowedStage Pipeline Progress RunResult SETTINGS WindowedStage bootstrap_savepoint ensure_java
        missing_settings register_tables session
    """,
    "emberstate.state": """
        AbstractKeyedStateBackend AggregateFunction AggregatingState AggregatingStateDescriptor AppendingState
        ImmutableAggregatingState ImmutableListState ImmutableMapState ImmutableReducingState ImmutableValueState
        InternalFoldingState InternalListState InternalMapState InternalState
        InternalValueState KeyedStateBackend KeyedStateSnapshot ListState ListStateDescriptor MapState
        MapStateDescriptor Op ReducingState ReducingStateDescriptor State StateDescriptor TtlFoldingState
        TtlConfig TtlListState TtlMapState TtlTime TtlUpdate TtlValueState TtlVisibility
        UserFacingAggregatingState UserFacingListState UserFacingMapState UserFacingReducingState
        UserFacingValueState ValueState ValueStateDescriptor
    """,
    "emberstate.storage": "LocalStorage MemoryStorage S3Storage Storage open_storage",
    "emberstate.testing": """
        Harness HarnessSnapshot HarnessStatistics KeyedInput LocalDelivery ManualClock START check_sink
    """,
}

#: Where programs may import from; the classes of `emberstate.errors` are listed in the reference, which is tested.
ALLOWED = {**{package: set(names.split()) for package, names in PUBLIC.items()}, "emberstate.errors": None}

IMPORT = re.compile(r"\bfrom (emberstate[\w.]*) import (?:\(([^)]*)\)|([^\n#;\"']*))|\bimport (emberstate\.[\w.]+)")


@pytest.mark.parametrize("package", PUBLIC)
def test_public_names(package: str) -> None:
    """Catches: a public name that goes, or one that comes unnoticed; one that is listed and not there."""
    module = importlib.import_module(package)

    assert sorted(module.__all__) == sorted(PUBLIC[package].split())
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


@pytest.mark.parametrize("package", PUBLIC)
def test_public_names_say_what_they_are(package: str) -> None:
    """Catches: a public class or function without a docstring of its own, which the reference is made from."""
    module = importlib.import_module(package)
    found = {name: getattr(module, name) for name in module.__all__}
    named = {name: get_origin(value) or value for name, value in found.items()}  # an alias is what its class is
    mute = [
        name
        for name, value in named.items()
        if callable(value) and not (vars(value).get("__doc__") if isinstance(value, type) else value.__doc__)
    ]

    assert module.__doc__
    assert mute == []


def private_imports(text: str) -> list[str]:
    """What a program imports of Emberstate that is not public."""
    found = []
    for package, in_brackets, in_line, whole in IMPORT.findall(text):
        if whole or package not in ALLOWED:
            found.append(whole or package)
            continue
        public = ALLOWED[package]
        names = [part.split()[0] for part in (in_brackets or in_line).split(",") if part.split()]
        found += [f"{package}.{name}" for name in names if public is not None and name not in public]
    return found


def programs() -> list[Path]:
    return [*documents(), *sorted((ROOT / "examples").glob("*.py"))]


@pytest.mark.parametrize("file", programs(), ids=lambda file: str(file.relative_to(ROOT)))
def test_pages_and_examples_import_public_names(file: Path) -> None:
    """Catches: a page that teaches an import which the next version may move."""
    text = file.read_text(encoding="utf-8")
    code = [text] if file.suffix == ".py" else ["\n".join(block.lines) for block in blocks(text)]

    assert [name for part in code for name in private_imports(part)] == []


def test_private_imports_are_found() -> None:
    """Catches: a check of imports that finds nothing."""
    assert private_imports("from emberstate.spark import session, Pipeline as P\nimport emberstate as es") == []
    assert private_imports("from emberstate.errors import RestoreRefusedError") == []
    assert private_imports("from emberstate.heap import (\n  IMMUTABLE,\n  Hidden,\n)") == ["emberstate.heap.Hidden"]
    assert private_imports("python -c 'from emberstate import _hot'") == ["emberstate._hot"]
    assert private_imports("from emberstate.spark.java import ensure_java") == ["emberstate.spark.java"]
    assert private_imports("    import emberstate.clock") == ["emberstate.clock"]
