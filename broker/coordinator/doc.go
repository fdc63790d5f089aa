// Package coordinator runs event-sourced shards over the partitions of an internal topic (__consumer_offsets now,
// __transaction_state later). A shard answers requests from memory; what must outlive the broker it states as records.
// The runtime appends them as one batch, replays them into the shard, and lets the replies go once the high watermark has
// passed them. So memory after a reload is what it was before, and no client sees what could still be lost.
//
// It never starts a goroutine, reads a clock or touches a file: the engine drives it (loads as tasks, high watermarks,
// Advance), an Appender writes. Replies run when all locks are released.
//
// Lock ranks: Runtime.changes, a partition's mu, the locks behind the Appender, waiting.mu, which is a leaf.
package coordinator
