// Package isr follows the replicas of one partition from its leader's side: what each of them has fetched gives the high
// watermark, and who is to join or leave the set of in-sync replicas.
//
// A State is a core: it takes the time as an argument and returns what should be done. It is not safe for use by several
// goroutines; the partition's lock is around it.
//
// Rules (KIP-966 and Kafka's Partition):
//   - The high watermark is the lowest log end over the maximal ISR: the ISR as decided and whoever is proposed to join it. A
//     proposed departure counts only once it is decided. A live follower outside that is caught up in time is waited for too,
//     so that it can join.
//   - The high watermark never goes back, and stands still while the ISR is smaller than the effective minimum: what is below
//     it is on enough replicas for ELR to elect from.
//   - The effective minimum is min.insync.replicas, at most the number of replicas.
//   - One proposal is out at a time; it carries leader epoch and partition epoch, and the controller decides.
package isr
