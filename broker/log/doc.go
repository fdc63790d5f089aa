// Package log is one partition's local log in Kafka's formats and file names (Log), and the logs of a broker over its log
// directories (Manager).
//
// What it promises: offsets only grow; a reader sees whole batches in the order in which they were appended; after a
// process crash nothing that Append returned is missing; after a power loss the log is a prefix of what was appended that
// holds at least what was flushed, never a hole. StartOffset <= HighWatermark <= EndOffset, and
// LastStableOffset <= HighWatermark. Damage that is found in what was complete once is never cut: its offsets answer
// ErrStorage. But where nothing sound follows it in the last segment it can't be told from a torn write, and is cut.
//
// A tiered log (remote.storage.enable) may begin before what is here: StartOffset <= LocalStartOffset, and what lies between is in
// the object store alone and answers ErrNotLocal. SetTiered says how far that store goes; segments go for local.retention.* below it,
// and otherwise only when the log start has passed them, which somebody moves by AdvanceStart. OpenUpload holds a sealed
// segment for its copy.
//
// What it never does: it starts no goroutine, reads no clock (now comes in), calls nobody back under a lock, and has no
// timer per partition. Somebody calls Manager.FlushSealed, FlushDue, Checkpoint, Retain, ExpireProducers, Scrub and Sweep from time
// to time; each works over what changed.
//
// Files of a partition: <20-digit base offset>.log, .index, .timeindex, .txnindex, .snapshot; leader-epoch-checkpoint;
// partition.metadata; damaged-ranges, which is ours. A file that is to go is renamed to .deleted and removed by a later
// Sweep. Kafka's tools read all of them. What a crash may cost is only made anew: index entries of the active segment, its
// last epochs and the producer snapshot of a roll go to disk when the segment is flushed, and recovery finds them in the
// batches from the recovery point on. Indexes are never believed: an entry counts only if the batch that it names is there.
//
// Locks, in the order in which they are taken: Manager.changing (create, delete), Log.maintenance (slow work of one log:
// flush, retention, truncation, scrub; held over I/O), logDir.writing (checkpoints; held over I/O), Log.mu (appends and
// every change of what is published; held over the one write of an append, over the creation of a segment's file at a roll
// and over the cut of a truncation, never over a sync of an append but one that a full disk cut short), segment.mu (opening files and maps, rebuilding an
// index). Manager.mu and the locks in environment.go are leaves. Readers take none but segment.mu, and that only to open
// what is closed: the segments and the log's end are published through atomics, and a count of references keeps a
// segment's file and maps until its last reader has let go.
package log
