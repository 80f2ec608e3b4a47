"""State, whichever backend keeps it: descriptors and declared types, the interfaces of states, the handles that user
code holds, the key context, timers, the base of keyed backends and their snapshots. `ttl` is about state that expires,
`cells` about keys and records as bytes.

Imports `codec` and `keygroups`, never a backend.
"""

from typing import TYPE_CHECKING

from emberstate._exports import exported

if TYPE_CHECKING:
    from emberstate.state.changes import Op
    from emberstate.state.descriptors import (
        AggregatingStateDescriptor,
        ListStateDescriptor,
        MapStateDescriptor,
        ReducingStateDescriptor,
        StateDescriptor,
        ValueStateDescriptor,
    )
    from emberstate.state.handles import (
        UserFacingAggregatingState,
        UserFacingListState,
        UserFacingReducingState,
        UserFacingValueState,
    )
    from emberstate.state.immutable_states import (
        ImmutableAggregatingState,
        ImmutableListState,
        ImmutableMapState,
        ImmutableReducingState,
        ImmutableValueState,
    )
    from emberstate.state.internal_states import (
        InternalFoldingState,
        InternalListState,
        InternalMapState,
        InternalState,
        InternalValueState,
    )
    from emberstate.state.keyed_state_backend import AbstractKeyedStateBackend, KeyedStateBackend
    from emberstate.state.keyed_state_snapshot import KeyedStateSnapshot
    from emberstate.state.map_handle import UserFacingMapState
    from emberstate.state.states import (
        AggregateFunction,
        AggregatingState,
        AppendingState,
        ListState,
        MapState,
        ReducingState,
        State,
        ValueState,
    )
    from emberstate.state.ttl.config import TtlConfig, TtlTime, TtlUpdate, TtlVisibility
    from emberstate.state.ttl.states import (
        TtlFoldingState,
        TtlListState,
        TtlMapState,
        TtlValueState,
    )

__all__ = [
    "AbstractKeyedStateBackend",
    "AggregateFunction",
    "AggregatingState",
    "AggregatingStateDescriptor",
    "AppendingState",
    "ImmutableAggregatingState",
    "ImmutableListState",
    "ImmutableMapState",
    "ImmutableReducingState",
    "ImmutableValueState",
    "InternalFoldingState",
    "InternalListState",
    "InternalMapState",
    "InternalState",
    "InternalValueState",
    "KeyedStateBackend",
    "KeyedStateSnapshot",
    "ListState",
    "ListStateDescriptor",
    "MapState",
    "MapStateDescriptor",
    "Op",
    "ReducingState",
    "ReducingStateDescriptor",
    "State",
    "StateDescriptor",
    "TtlConfig",
    "TtlFoldingState",
    "TtlListState",
    "TtlMapState",
    "TtlTime",
    "TtlUpdate",
    "TtlValueState",
    "TtlVisibility",
    "UserFacingAggregatingState",
    "UserFacingListState",
    "UserFacingMapState",
    "UserFacingReducingState",
    "UserFacingValueState",
    "ValueState",
    "ValueStateDescriptor",
]

if not TYPE_CHECKING:  # a type checker would take any name for one of the package's
    __getattr__ = exported(
        __name__,
        {
            "changes": ["Op"],
            "descriptors": [
                "AggregatingStateDescriptor",
                "ListStateDescriptor",
                "MapStateDescriptor",
                "ReducingStateDescriptor",
                "StateDescriptor",
                "ValueStateDescriptor",
            ],
            "handles": [
                "UserFacingAggregatingState",
                "UserFacingListState",
                "UserFacingReducingState",
                "UserFacingValueState",
            ],
            "immutable_states": [
                "ImmutableAggregatingState",
                "ImmutableListState",
                "ImmutableMapState",
                "ImmutableReducingState",
                "ImmutableValueState",
            ],
            "internal_states": [
                "InternalFoldingState",
                "InternalListState",
                "InternalMapState",
                "InternalState",
                "InternalValueState",
            ],
            "keyed_state_backend": ["AbstractKeyedStateBackend", "KeyedStateBackend"],
            "keyed_state_snapshot": ["KeyedStateSnapshot"],
            "map_handle": ["UserFacingMapState"],
            "states": [
                "AggregateFunction",
                "AggregatingState",
                "AppendingState",
                "ListState",
                "MapState",
                "ReducingState",
                "State",
                "ValueState",
            ],
            "ttl.config": ["TtlConfig", "TtlTime", "TtlUpdate", "TtlVisibility"],
            "ttl.states": ["TtlFoldingState", "TtlListState", "TtlMapState", "TtlValueState"],
        },
    )
