// Package fsck checks what lies in a bucket against what the manifests say, without any broker, and repairs what can be repaired
// without losing anything.
//
// It reads the store as others write to it: what it calls missing it has asked for twice, after the manifest was read to its tail
// (safety rule 27), and what it calls an orphan is older than the grace and of a leader epoch that is over, so that nobody can
// ever name it (safety rule 22). It lists first and reads the manifests afterwards.
//
// What it changes, and only when asked to: it deletes orphans and what cut-off uploads have left, and puts back a sidecar that is
// gone, where the one that its segment leads to is the very one that the manifest's checksum names. Objects are never
// overwritten, manifests never written to: all else is told to people, with what they may do. Rebuild, the exception, is for
// a manifest that can't be read any more; it fences the partition's leader off.
//
// The package starts no goroutine and reads no clock.
package fsck
