from emberstate.heap.map.before_images cimport BeforeImages, MapImage
from emberstate.heap.map.buckets cimport CopyOnWriteBuckets, head_of, set_head
from emberstate.heap.map.page_table cimport PageTable
from emberstate.heap.map.snapshots cimport SnapshotPoint
from emberstate.heap.map.entry cimport StateMapEntry
