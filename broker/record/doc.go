// Package record knows the format of record batches (magic 2, KIP-98) and nothing else: it validates, walks, builds and
// compresses them.
//
// A Batch is the bytes of one batch, used where they lie: accessors read the header in place, the leader's two patches (base
// offset and leader epoch) lie outside the checksum, and an accepted uncompressed batch is stored as the very bytes that
// the producer sent. The package reads no clock, starts no goroutine, keeps no state but pools, and bounds whatever a
// compressed body can unfold to. All integers are big-endian; timestamps are milliseconds since the epoch.
package record
