// Package sim runs a whole cluster on one goroutine in virtual time, with clients, faults and crashes, and compares what the
// clients were told with what is there. Everything is drawn from one seed: the same seed gives the same run, down to the hash
// of its trace.
//
// A cluster is so far one broker: the real broker/engine over vfs.Mem, a disk that can lose what was not synced, and over
// faultstore, a bucket whose answers get lost. An event heap delivers what the shell's goroutines would: requests, answers,
// the engine's wake-ups, its tasks (each run at a moment of its own, its completion delivered at another), crashes, restarts. A
// crash may fall between any two calls of the file system or of the store: the call panics, the run of the broker ends there,
// and what the disk held at that moment is what the next run finds.
//
// # Two crashes, two promises
//
// A process crash keeps the page cache: no acknowledged record, offset, topic or setting may be missing. A power loss keeps
// what was synced: logs and group offsets are prefixes of what they were, never with a hole, and hold everything below
// what was flushed (flush.messages=1, a clean stop, the recovery point on the disk); what the metadata chain has
// acknowledged is all there. After each restart, before clients come back, the whole state is read through the API and held
// against the ledger (audit.go).
//
// # The bucket
//
// Half of the seeds are tiered (tiered.go): logs keep little on the disk, consumers and audits read across the seam, and what the
// bucket has no power loss may take. An audit holds the bucket against itself as fsck does, and the disk against the bucket
// (bucket_audit.go); an audit's own reads of it are answered within its moment and past all faults. Some brokers lose all their disks
// (recovery.go): one that starts without a word has to have every record, and one that is told to recover has to have all that
// the bucket had, name what it lacks, and give no offset out twice.
//
// # How to read a trace
//
//	go test ./broker/sim -run 'TestSeeds$' -seeds=1 -seed=17 -tracefile=/tmp/17.txt
//
// writes one line an event: virtual seconds since the start, who, what.
//
//	4.112034 broker     run 2 opens, boot 1
//	4.112034 store      get cluster.json: ok
//	4.112034 disk       read logs/a/cluster-metadata.json 0+5120
//	4.190411 broker     run 2 serves
//	4.190411 audit      after a process crash: 7 partitions, 1409 records, chain to 31
//	4.203000 producer-1 > Produce v9 p1/44 p1/45
//	4.204218 producer-1 < Produce v9: orders-0@1409
//	5.000000 fault      power loss at the 3rd call of the disk from here
//
// ">" is a request as it leaves the client, "<" an answer as it reaches it; "lost" instead of an answer means that the
// connection broke and nobody knows what became of the request. Lines of the engine's own log are there too ("log"). A
// seed that fails prints the end of its trace without the lines of the disk. To see what a client believed, follow its
// name; to see what the broker did, look for "broker", "task" and "log"; what was injected is under "fault" and behind the
// colon of "store".
//
// When two runs of a seed differ, write both traces and compare them: the first line that differs names the package that
// asked a clock, iterated over a map, or drew from a global source.
package sim
