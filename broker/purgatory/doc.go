// Package purgatory holds operations that can't be answered yet: a produce that waits for replicas, a fetch that waits for
// bytes. Each operation watches some keys and has a deadline. Fire tries the operations of a key, Advance expires those whose
// time is over, and every operation ends exactly once, by Complete or by Expire.
//
// It starts no goroutine and reads no clock: whoever drives it calls Advance at NextWake. It is safe for use by many
// goroutines, and calls an operation's methods only while none of its locks is held, so that these may call back into it.
// Parked operations cost nothing until a key fires or a deadline passes.
package purgatory
