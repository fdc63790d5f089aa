// Package replica holds the partitions of one broker: their logs, their roles as leader or follower, and what acks and Fetch
// mean over them. A ReplicaManager in Kafka's terms.
//
// Its calls come from many goroutines: Produce, Fetch and the look-ups from connections, Apply and Advance from whoever drives
// the engine, Maintain and the loads of coordinators from tasks. It starts no goroutine and reads no clock. Requests that have
// to wait are parked; their done functions run exactly once, on whichever goroutine ended the wait, with no lock held.
//
// Readers find partitions in a snapshot that Apply swaps, and read logs without a lock. An append holds its partition's
// appends lock for reading. Ranks: Manager.mu, then partition.appends and partition.mu, then isrWatch.mu and the locks of
// package log. The locks of the purgatories and of the session cache are leaves, and taken while none of these is held.
// Nothing waits for a client, a peer or the object store under any of them.
package replica
