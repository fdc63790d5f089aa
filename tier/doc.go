// Package tier moves sealed segments of the partitions that this broker leads into the object store, and takes away what
// retention has passed: locally and in the bucket. Reading what lies there is the affair of tier/cold.
//
// What it promises. An object counts only when a manifest names it: data first, then its sidecar, then the entry. Local
// segments go only below a tiered end that was read back from the manifest. The log start moves before objects are
// dropped, and objects go a grace after the entry that dropped them. A leader that lost its role stops at the first entry
// that it can't create. A failing partition stops no other, and with the store away nothing is lost: the numbers of Stats
// grow.
//
// What it never does: it starts no goroutine, reads no clock, has no timer per partition and calls nobody back under a
// lock. Whoever drives it asks Due for jobs, runs each where it likes, and hands the Completion back on its loop:
//
//	for _, job := range m.Due(now) {
//		go func() { complete := job.Run(ctx); loop <- func() { complete(time.Now()) } }()
//	}
//	sleep until m.NextWake(), or until Options.Wake is called
//
// # Leading
//
// Lead says that this broker leads a partition from now on. Where it answers held, nothing may be appended to, and nothing
// read from, the partition's log until Options.Released was called for that epoch: the manifest may end above the log's
// end (safety rules 19 and 21), and the log then starts anew from the bucket. Everything else of a partition begins lazily
// and holds up nobody.
//
// # Stopping
//
// Close asks every led partition to seal, upload all and commit a close entry (safety rule 29). Jobs go on to come out of
// Due; Closed tells when nothing is left, or the time is over. Partitions that never had a record cost no request: Empty
// names them, for a recovery not to miss their manifests.
//
// Locks: Manager.mu guards the partitions and their queue; it is a leaf, held for map work only.
package tier
