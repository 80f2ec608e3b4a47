"""How one memory limit is divided: block cache, write buffers, and the log of touched keys.

The limit covers what grows with state and with transactions. Write buffers are charged to the block cache, so the two
together stay within the cache's size. Index and filter blocks are in the cache too, in partitions, so that they can be
evicted like other blocks. The remainder covers RocksDB's other allocations: open files, iterators, buffers of
compactions, and fragmentation.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from rocksdict import (
    BlockBasedIndexType,
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    Options,
    WriteBufferManager,
)

from emberstate.errors import StateDeclarationError

#: Below this, most of the limit would be RocksDB's fixed costs.
SMALLEST_LIMIT: Final = 16 * 1024 * 1024
DEFAULT_LIMIT: Final = 256 * 1024 * 1024

_WRITE_BUFFERS: Final = 2
_BLOCK: Final = 16 * 1024
_OPEN_FILES: Final = 256


@dataclasses.dataclass(frozen=True, slots=True)
class MemoryBudget:
    """The parts of a limit, in bytes.

    >>> MemoryBudget.of(64 * 1024 * 1024)
    MemoryBudget(limit=67108864, cache=33554432, write_buffers=16777216, touched=8388608)
    """

    limit: int
    cache: int
    write_buffers: int
    touched: int

    @classmethod
    def of(cls, limit: int) -> MemoryBudget:
        """Divide a limit; raises StateDeclarationError if it is too small."""
        if type(limit) is not int or limit < SMALLEST_LIMIT:
            raise StateDeclarationError(
                f"a RocksDB backend needs a memory limit of at least {SMALLEST_LIMIT} bytes, got {limit!r}",
                option="memory",
                expected=SMALLEST_LIMIT,
            )
        return cls(limit, cache=limit // 2, write_buffers=limit // 4, touched=limit // 8)


def options_for(budget: MemoryBudget) -> tuple[Options, Cache, WriteBufferManager]:
    """Return RocksDB's options for a budget, and the two objects that report how much of it is used."""
    cache = Cache(budget.cache)
    buffers = WriteBufferManager.new_write_buffer_manager_with_cache(budget.write_buffers, False, cache)
    tables = BlockBasedOptions()
    tables.set_block_cache(cache)
    tables.set_block_size(_BLOCK)
    tables.set_bloom_filter(10, False)
    tables.set_cache_index_and_filter_blocks(True)
    tables.set_pin_l0_filter_and_index_blocks_in_cache(True)
    tables.set_index_type(BlockBasedIndexType.two_level_index_search())
    tables.set_partition_filters(True)
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_error_if_exists(True)  # a backend begins empty
    options.set_block_based_table_factory(tables)
    options.set_write_buffer_manager(buffers)
    # When all buffers are full, writes wait for a flush: this makes the size a hard limit.
    options.set_write_buffer_size(budget.write_buffers // _WRITE_BUFFERS)
    options.set_max_write_buffer_number(_WRITE_BUFFERS)
    options.set_arena_block_size(min(1024 * 1024, budget.write_buffers // 32))
    options.set_max_bytes_for_level_base(2 * budget.write_buffers)
    options.set_target_file_size_base(max(4 * 1024 * 1024, budget.write_buffers // 2))
    options.set_level_compaction_dynamic_level_bytes(True)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_max_background_jobs(2)
    options.set_compaction_readahead_size(256 * 1024)
    options.set_max_open_files(_OPEN_FILES)
    options.set_keep_log_file_num(1)
    options.set_max_log_file_size(1024 * 1024)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    return options, cache, buffers
