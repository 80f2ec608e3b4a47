from emberstate.heap.before_images cimport BeforeImages, MapImage
from emberstate.heap.copy_on_write_buckets cimport CopyOnWriteBuckets, head_of, set_head
from emberstate.heap.page_table cimport PageTable
from emberstate.heap.snapshots cimport Snapshot
from emberstate.heap.state_map_entry cimport StateMapEntry
