"""Runs all benchmarks: `python -m benchmarks.run [name …]`."""

from __future__ import annotations

import importlib
import sys

from emberstate import _hot

BENCHMARKS = (
    "state_map_operations",
    "snapshot_cost",
    "growth_pause",
    "collections_in_state",
    "timers",
    "columns",
    "state_files",
    "background_base",
    "runtime_loop",
    "windows",
    "rocksdb_states",
    "spark_pipeline",
    "aggregates",
)


def main() -> None:
    """Run the benchmarks named on the command line, or all."""
    names = sys.argv[1:] or BENCHMARKS
    if unknown := sorted(set(names) - set(BENCHMARKS)):
        sys.exit(f"no benchmark {unknown}: there are {', '.join(BENCHMARKS)}")
    for name in names:
        module = importlib.import_module(f"benchmarks.{name}")
        module.main()
    loose = [name for name in _hot.HOT_MODULES if name in sys.modules and not _hot.is_compiled(name)]
    if loose:
        print(f"\nWARNING: measured interpreted: {', '.join(loose)}")


if __name__ == "__main__":
    main()
