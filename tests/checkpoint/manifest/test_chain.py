"""Chains: planning, adopting and sharing out, against models that are too simple to be wrong."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emberstate.checkpoint.manifest.chain import ChainPolicy, Rewrite, adopt, plan_rewrite, repartition
from emberstate.checkpoint.manifest.invariants import parse_manifest
from emberstate.checkpoint.manifest.model import FileRef, Manifest, SlotChain, StateFile
from emberstate.keygroups import KeyGroupRange, range_for_slot
from tests.checkpoint.counting import counting_job, expected_after
from tests.checkpoint.manifest.manifest_forgery import SUM, body, manifest, operator
from tests.checkpoint.stored import StorageBackend
from tests.effort import examples
from tests.patience import PATIENCE

MIB = 2**20


def delta(ident: str, size: int = 100, groups: tuple[int, int] = (0, 127), **changes: Any) -> StateFile:
    return StateFile(ident, "delta", groups, FileRef(f"state/1/{ident}", size, SUM), SUM, 1, **changes)


def base(ident: str, size: int = 100, groups: tuple[int, int] = (0, 127)) -> StateFile:
    return StateFile(ident, "base", groups, FileRef(f"state/1/{ident}", size, SUM), SUM, 1)


def chain(*files: StateFile, groups: tuple[int, int] = (0, 127)) -> SlotChain:
    return SlotChain(groups, "attempt", files)


def ids(found: SlotChain | str) -> list[str]:
    assert not isinstance(found, str), found
    return [file.id for file in found.files]


# -- adopting -----------------------------------------------------------------------------------------------------


def test_a_rewrite_takes_the_place_of_what_it_was_made_from() -> None:
    """Catches: deltas that came after a rewrite lost with those before it, or put before it."""
    before = chain(base("b"), delta("1"), delta("2"))
    now = chain(base("b"), delta("1"), delta("2"), delta("3"), delta("4"))
    assert ids(adopt(now, Rewrite.of("o", before.files, [base("B")]))) == ["B", "3", "4"]
    assert ids(adopt(now, Rewrite.of("o", before.files, [base("B", groups=(0, 63)), base("C", groups=(64, 127))]))) == [
        "B", "C", "3", "4",
    ]  # fmt: skip
    assert ids(adopt(now, Rewrite.of("o", now.files[1:3], [delta("m")]))) == ["b", "m", "3", "4"]
    assert ids(adopt(now, Rewrite.of("o", now.files[3:], [delta("m")]))) == ["b", "1", "2", "m"]


@pytest.mark.parametrize(
    ("replaced", "why"),
    [
        ([], "replaces nothing"),
        (["x"], "does not contain"),
        (["b", "1", "x"], "does not contain"),
        (["b", "2"], "does not contain"),
        (["2", "1"], "does not contain"),
        (["1", "2", "3", "4"], "does not contain"),
    ],
)
def test_a_rewrite_of_another_lineage_is_not_taken(replaced: list[str], why: str) -> None:
    """Catches: state of an attempt that lost, or of a lineage that was given up, in the chain."""
    now = chain(base("b"), delta("1"), delta("2"), delta("3"))
    found = adopt(now, Rewrite.of("o", [delta(ident) for ident in replaced], [delta("m")]))
    assert isinstance(found, str) and why in found


def test_a_base_replaces_everything_before_it() -> None:
    """Catches: a base that stands behind deltas of its key groups."""
    now = chain(delta("1"), delta("2"))
    found = adopt(now, Rewrite.of("o", [delta("2")], [base("B")]))
    assert found == "it is a base, but files precede those that it replaces"


def test_the_same_files_for_other_key_groups_are_others() -> None:
    """Catches: a merge of one half put in the place of the other: key groups lost, others applied twice."""
    one = chain(*[delta(str(number)) for number in range(8)])
    halves = repartition([one], [KeyGroupRange(0, 63), KeyGroupRange(64, 127)], "t")
    (whole,) = repartition(halves, [KeyGroupRange(0, 127)], "u")
    order = plan_rewrite(whole, 5)
    assert order is not None and [file.groups for file in order.merge] == [(64, 127)] * 8
    found = adopt(whole, Rewrite.of(order.id, order.merge, [delta("m", groups=(64, 127))]))
    assert not isinstance(found, str)
    assert [(file.id, file.groups) for file in found.files] == [
        *((str(number), (0, 63)) for number in range(8)),
        ("m", (64, 127)),
    ]


@pytest.mark.reliability(21)
def test_a_job_survives_rewrites_after_two_changes_of_parallelism() -> None:
    """Catches: the same, with real state files."""
    backend = StorageBackend()
    job = counting_job(backend, 1)
    job.run(8)
    job.close()
    for parallelism in (2, 1):
        counting_job(backend, parallelism).close()
    job = counting_job(backend, 1)
    job.run(1)
    writer = job.slot(0)._writer
    assert writer is not None and writer.wait(PATIENCE)
    job.run(3)
    assert job.coordinator.statistics().adopted >= 1
    assert job.content() == expected_after(12) == job.restored()
    job.close()


# -- planning -----------------------------------------------------------------------------------------------------


def test_short_chains_are_left_alone() -> None:
    """Catches: rewriting for its own sake."""
    assert plan_rewrite(chain(), 1) is None
    assert plan_rewrite(chain(base("b")), 1) is None
    assert plan_rewrite(chain(*[delta(str(i)) for i in range(11)]), 1) is None
    assert plan_rewrite(chain(base("b", 100 * MIB), *[delta(str(i), MIB) for i in range(11)]), 1) is None


def test_small_deltas_are_merged_and_large_ones_end_in_a_base() -> None:
    """Catches: a base of a large state because of small deltas, or deltas as large as the state carried along."""
    small = plan_rewrite(chain(base("b", 100 * MIB), *[delta(str(i), 1000) for i in range(12)]), 7)
    assert small is not None and [file.id for file in small.merge] == [str(i) for i in range(12)] and small.number == 7
    heavy = plan_rewrite(chain(base("b", 10 * MIB), delta("1", 4 * MIB), delta("2", 2 * MIB)), 7)
    assert heavy is not None and heavy.merge == () and heavy.chain.files[0].id == "b"
    first = plan_rewrite(chain(*[delta(str(i), MIB) for i in range(12)]), 7)
    assert first is not None and first.merge == ()


def test_only_neighbours_that_can_be_one_file_are_merged() -> None:
    """Catches: deltas of other key groups, or with other decisions about their states, merged into one."""
    early = [delta(f"e{i}", groups=(0, 63)) for i in range(6)]
    late = [delta(f"l{i}") for i in range(8)]
    found = plan_rewrite(chain(*early, *late), 1)
    assert found is not None and list(found.merge) == late
    evolved = [delta(f"v{i}", evolution={"rename_states": {"a": "b"}}) for i in range(6)]
    found = plan_rewrite(chain(*evolved, *late), 1)
    assert found is not None and list(found.merge) == late
    found = plan_rewrite(chain(*late, *evolved), 1)
    assert found is not None and found.merge == ()  # a base, in which the decisions are carried out


@settings(max_examples=examples(200))
@given(
    st.lists(st.integers(50, 3 * MIB), min_size=1, max_size=200),
    st.integers(0, 6),
    st.sampled_from([0.05, 0.3, 1.0]),
)
def test_chains_stay_short_whatever_the_sizes(sizes: list[int], slowness: int, growth: float) -> None:
    """Catches: a plan that never gets a chain short again, or rewrites without end."""
    policy = ChainPolicy()
    now, number, order, age, state, rewritten = chain(), 0, None, 0, 0, 0
    for number, size in enumerate(sizes):
        state += int(size * growth)
        order = order or plan_rewrite(now, number, policy)
        if order is not None:
            age += 1
            if age > slowness:
                if order.merge:
                    total = sum(file.place.size for file in order.merge)
                    found = adopt(now, Rewrite.of(order.id, order.merge, [delta(order.id, total)]))
                else:
                    found = adopt(now, Rewrite.of(order.id, order.chain.files, [base(order.id, max(state, 1))]))
                assert not isinstance(found, str)
                rewritten += sum(file.place.size for file in found.files if file.id == order.id)
                now, order, age = found, None, 0
        now = msgspec.structs.replace(now, files=(*now.files, delta(f"d{number}", size)))
        assert len(now.files) <= policy.rewrite_at + slowness + 2 <= policy.most_files
    # Every byte is written anew a number of times that does not grow with their number.
    assert rewritten <= 12 * (sum(sizes) + state) + 50 * MIB


# -- sharing out --------------------------------------------------------------------------------------------------


def lists_of(chains: tuple[SlotChain, ...]) -> dict[int, list[str]]:
    """The model: for every key group the files to apply, in order."""
    found: dict[int, list[str]] = {}
    for one in chains:
        for group in one.key_groups:
            assert group not in found
            found[group] = [file.id for file in one.files if file.groups[0] <= group <= file.groups[1]]
    return found


def ranges(parallelism: int, groups: int = 128) -> list[KeyGroupRange]:
    return [range_for_slot(groups, parallelism, slot) for slot in range(parallelism)]


def as_manifest(chains: tuple[SlotChain, ...], groups: int) -> Manifest:
    plain = [msgspec.to_builtins(one) for one in chains]
    return parse_manifest(body(manifest(operators=[operator(slots=plain, max_parallelism=groups)])), "m")


@pytest.mark.reliability(21)
def test_sharing_out_up_and_down_changes_no_key_groups_files() -> None:
    """Catches: a file lost, doubled or out of order on the way 1→3→2→128→1."""
    chains: tuple[SlotChain, ...] = repartition([chain(base("b"), delta("0"))], ranges(1), "t")
    for step, parallelism in enumerate((3, 2, 128, 1, 7, 1)):
        expected = lists_of(chains)
        chains = repartition(chains, ranges(parallelism), f"t{step}")
        assert lists_of(chains) == expected
        as_manifest(chains, 128)
        assert len({one.attempt for one in chains}) == parallelism
        grown = [
            msgspec.structs.replace(one, files=(*one.files, delta(f"{step}-{slot}", groups=one.groups)))
            for slot, one in enumerate(chains)
        ]
        chains = tuple(grown)


@pytest.mark.reliability(21)
@settings(max_examples=examples(150))
@given(st.data())
def test_sharing_out_keeps_every_key_groups_files_in_order(data: st.DataObject) -> None:
    """Catches: the same for any parallelisms, with deltas, bases and rewrites in between."""
    groups = data.draw(st.sampled_from([1, 2, 5, 16, 128]))
    first = ranges(data.draw(st.integers(1, groups)), groups)
    chains: tuple[SlotChain, ...] = tuple(SlotChain((part.start, part.end), f"first {part.start}") for part in first)
    expected: dict[int, list[str]] = {group: [] for group in range(groups)}
    for step in range(data.draw(st.integers(1, 8))):
        slot = data.draw(st.integers(0, len(chains) - 1))
        one = chains[slot]
        what = data.draw(st.sampled_from(["delta", "delta", "delta", "base", "merge", "rescale"]))
        if what == "rescale":
            wanted = ranges(data.draw(st.integers(1, groups)), groups)
            same = [other.key_groups for other in chains] == wanted
            after = repartition(chains, wanted, f"t{step}")
            assert after == chains if same else not {c.attempt for c in after} & {c.attempt for c in chains}
            chains = after
        else:
            made = delta(f"{what}{step}", groups=one.groups)
            if what == "delta":
                files = (*one.files, made)
            elif what == "base":
                rewrite = Rewrite.of("o", one.files, [msgspec.structs.replace(made, kind="base")])
                adopted = adopt(one, rewrite)
                files = one.files if isinstance(adopted, str) else adopted.files
                if not isinstance(adopted, str):
                    for group in one.key_groups:
                        expected[group] = []
            else:
                run = [file for file in one.files if file.groups == one.groups and file.kind == "delta"][-2:]
                adopted = adopt(one, Rewrite.of("o", run, [made]))
                files = one.files if isinstance(adopted, str) else adopted.files
                if not isinstance(adopted, str):
                    gone = {file.id for file in run}
                    for group in one.key_groups:
                        place = min(expected[group].index(ident) for ident in gone)
                        expected[group][place : place + len(gone)] = [made.id]
            if what in ("delta", "base") and files != one.files:
                for group in one.key_groups:
                    expected[group].append(made.id)
            chains = (*chains[:slot], msgspec.structs.replace(one, files=files), *chains[slot + 1 :])
        assert lists_of(chains) == expected
        as_manifest(chains, groups)
