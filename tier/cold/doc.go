// Package cold reads what of a partition lies in the object store and no longer on the local disk.
//
// A Reader answers fetches, look-ups by time, and where leader epochs end, over the partitions' manifests. Record bytes come
// through package cache, in ranged gets side by side; every batch is verified by its checksum before it is served. What is read
// in sequence is read ahead, also over the ends of segments; where a fetch asks for more partitions than there is room for, they have
// whole gets by turns. An answer holds what has come by its deadline; the rest goes on
// coming, and the next fetch finds it. Local segments are not looked at: who has both asks both.
//
// The package starts no goroutine of its own (Options.Go does), and waits only in the calls that take a context.
package cold
