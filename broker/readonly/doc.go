// Package readonly serves what lies in a bucket to consumers, while the cluster that it belongs to is down or elsewhere: as of
// the moment in which it was opened, or of a past one.
//
// It is the replica manager and the handlers of a broker over logs that are empty and begin where the manifests end: each fetch
// and look-up goes to the bucket. What changes anything is not served, but for Produce, which answers that nobody may write. It
// never writes to the bucket: its store refuses puts and deletes.
//
// The package starts no goroutine and reads no clock: whoever drives it calls Advance at NextWake, or when woken.
package readonly
