// Package group coordinates consumer groups of the classic protocol and keeps their committed offsets, in Kafka's words and
// in Kafka's record formats on __consumer_offsets.
//
// A Coordinator routes each request to the shard of the group's partition. In a shard, offsets and the settled part of a
// group (Empty or Stable: generation, members, assignment) come from the log alone, through Replay. What happens between
// two settled states (who has joined, who waits, who is late) lives in memory, as in Kafka: a new coordinator asks the
// members again.
//
// It holds no clock, goroutine or I/O: now comes in with each call, answers leave through callbacks without locks.
package group
