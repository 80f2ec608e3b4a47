"""The outputs of a committed batch as they are delivered again: with the schemas of the program that ran it.

A batch that Spark sends again may meet a changed program. Every commit records the stages of its program with the
schemas of their outputs. If the present program sends outputs of the same stages and names to sinks, they are delivered
under the recorded schemas: the same rows, columns and types as the first time. If not, the batch is rejected before the
job is taken over, so that the old program can still be started and deliver it.

A batch without recorded schemas is delivered only to the same operators and the same schemas.

Thread safety: pure functions, apart from reading outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from emberstate.checkpoint.manifest.model import Manifest, Stage
from emberstate.checkpoint.manifest.open_files import read_ref
from emberstate.errors import CorruptionError, RestoreRefusedError, StateDeclarationError
from emberstate.runtime.rows.outputs import MAIN, output_columns
from emberstate.runtime.rows.row import RowType
from emberstate.storage.interface import Storage

#: Outputs by stage and name.
RowTypes = dict[tuple[str, str], RowType]


def recorded_stages(row_types: Mapping[str, Mapping[str, RowType]]) -> tuple[Stage, ...]:
    """The stages as a manifest records them; `row_types` has their outputs, in order of the stages."""
    return tuple(
        Stage(stage, {name: row_type.schema for name, row_type in outputs.items()})
        for stage, outputs in row_types.items()
    )


def sent_to_sinks(stages: Sequence[Stage]) -> RowTypes:
    """The outputs that sinks can get: the main output of the last stage, and all side outputs."""
    return {
        (stage.name, name): RowType.of(schema)
        for stage in stages
        for name, schema in stage.outputs.items()
        if name != MAIN or stage is stages[-1]
    }


def delivered_as(storage: Storage, manifest: Manifest, stages: Sequence[Stage], operators: Sequence[str]) -> RowTypes:
    """The outputs of a committed batch, with their schemas, for a program with these stages and operators.

    Raises:
        RestoreRefusedError: the program has other outputs.
        CorruptionError: a recorded schema is invalid.
    """
    now = sent_to_sinks(stages)
    if not manifest.stages:
        _check_unrecorded(storage, manifest, now, operators)
        return now
    try:
        then = sent_to_sinks(manifest.stages)
    except StateDeclarationError as error:
        what = f"{manifest.describe()}: the schema of an output is invalid: {error!s:.300}"
        raise CorruptionError(what, checkpoint=manifest.number).located(**error.place) from None
    if then.keys() != now.keys():
        raise _refused(manifest, f"gave the outputs {_names(then)}, this program gives {_names(now)}")
    return then


def changed(then: RowTypes, stages: Sequence[Stage]) -> list[str]:
    """Outputs whose recorded schema differs from the present one, for a message."""
    now = sent_to_sinks(stages)
    return [
        f"{name} of {stage} as ({row_type.schema}), now ({now[stage, name].schema})"
        for (stage, name), row_type in then.items()
        if row_type != now[stage, name]
    ]


def _check_unrecorded(storage: Storage, manifest: Manifest, now: RowTypes, operators: Sequence[str]) -> None:
    if not manifest.outputs:
        return
    before = [operator.name for operator in manifest.operators]
    if before != list(operators):
        raise _refused(manifest, f"had the operators {before}, this program has {list(operators)}")
    for output in {(output.operator, output.name): output for output in manifest.outputs}.values():
        row_type = now.get((output.operator, output.name))
        if row_type is None:
            if output.name != MAIN:
                raise _refused(manifest, f"gave the output {output.name!r}, which this program does not")
            continue  # the next stage has read it
        found = output_columns(read_ref(storage, output.place))
        if found != row_type:
            columns = f"({found.schema}), this program gives ({row_type.schema})"
            raise _refused(manifest, f"gave output {output.name!r} with the columns {columns}")


def _names(outputs: RowTypes) -> list[str]:
    return [f"{name} of {stage}" for stage, name in outputs]


def _refused(manifest: Manifest, why: str) -> RestoreRefusedError:
    batch = "" if manifest.batch is None else f" {manifest.batch.id}"
    return RestoreRefusedError(
        f"batch{batch} is committed and must be delivered again, but the program that ran it {why}. Start once with "
        f"the old program, which delivers it, and then with this one. Nothing was changed.",
        batch=None if manifest.batch is None else manifest.batch.id,
        checkpoint=manifest.number,
    )
