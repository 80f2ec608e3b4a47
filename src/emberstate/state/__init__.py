"""State, whichever backend keeps it: descriptors and declared types, the interfaces of states, the handles that user
code holds, the key context, timers. `ttl` is about state that expires.

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
    from emberstate.state.immutable_states import (
        ImmutableAggregatingState,
        ImmutableListState,
        ImmutableMapState,
        ImmutableReducingState,
        ImmutableValueState,
    )
    from emberstate.state.internal_states import (
        InternalAggregatingState,
        InternalListState,
        InternalMapState,
        InternalReducingState,
        InternalState,
        InternalValueState,
    )
    from emberstate.state.keyed_state_backend import KeyedStateBackend, KeyedStateSnapshot
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
        TtlAggregatingState,
        TtlListState,
        TtlMapState,
        TtlReducingState,
        TtlValueState,
    )
    from emberstate.state.user_facing_map_state import UserFacingMapState
    from emberstate.state.user_facing_states import (
        UserFacingAggregatingState,
        UserFacingListState,
        UserFacingReducingState,
        UserFacingValueState,
    )

__all__ = [
    "AggregateFunction",
    "AggregatingState",
    "AggregatingStateDescriptor",
    "AppendingState",
    "ImmutableAggregatingState",
    "ImmutableListState",
    "ImmutableMapState",
    "ImmutableReducingState",
    "ImmutableValueState",
    "InternalAggregatingState",
    "InternalListState",
    "InternalMapState",
    "InternalReducingState",
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
    "TtlAggregatingState",
    "TtlConfig",
    "TtlListState",
    "TtlMapState",
    "TtlReducingState",
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
            "immutable_states": [
                "ImmutableAggregatingState",
                "ImmutableListState",
                "ImmutableMapState",
                "ImmutableReducingState",
                "ImmutableValueState",
            ],
            "internal_states": [
                "InternalAggregatingState",
                "InternalListState",
                "InternalMapState",
                "InternalReducingState",
                "InternalState",
                "InternalValueState",
            ],
            "keyed_state_backend": ["KeyedStateBackend", "KeyedStateSnapshot"],
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
            "ttl.states": ["TtlAggregatingState", "TtlListState", "TtlMapState", "TtlReducingState", "TtlValueState"],
            "user_facing_map_state": ["UserFacingMapState"],
            "user_facing_states": [
                "UserFacingAggregatingState",
                "UserFacingListState",
                "UserFacingReducingState",
                "UserFacingValueState",
            ],
        },
    )
