// Package log is one partition's local log in Kafka's formats and file names (Log), and the logs of a broker over its log
// directories (Manager).
//
// What it promises: offsets only grow; a reader sees whole batches in the order in which they were appended; after a
// process crash nothing that Append returned is missing; after a power loss the log is a prefix of what was appended that
// holds at least what was flushed, never a hole. StartOffset <= HighWatermark <= EndOffset, and
// LastStableOffset <= HighWatermark. Damage that is found below the flushed part is never cut: its offsets answer
// ErrStorage.
//
// What it never does: it starts no goroutine, reads no clock (now comes in), calls nobody back under a lock, and has no
// timer per partition. Somebody calls Manager.FlushDue, Checkpoint, Retain, ExpireProducers, Scrub and Sweep from time to
// time; each works over what changed.
//
// Files of a partition: <20-digit base offset>.log, .index, .timeindex, .txnindex, .snapshot; leader-epoch-checkpoint;
// partition.metadata. A file that is to go is renamed to .deleted and removed by a later Sweep. Kafka's tools read all
// of them. Index entries of the active segment are written in blocks: recovery rebuilds the indexes of what was not
// flushed, so nothing rests on them.
//
// Locks, in the order in which they are taken: Manager.mu, Log.maintenance (slow work of one log: flush, retention,
// truncation; held over I/O), Log.mu (appends and every change of what is published; held over the one write of an
// append and over the creation of a segment's file, never over a sync), segment.mu (opening files and maps). Readers
// take none of the first three: the segments and the log's end are published through atomics, and a count of
// references keeps a segment's file and maps until its last reader has let go.
package log
