// Package plan decides what the leader of a tiered partition should do next: what to seal, copy and delete, and why each segment
// is kept.
//
// What it promises: a plan follows from its View alone. It never lets go of what the manifest does not have, unless total
// retention passed it; it copies nothing above the last stable offset; the log start only grows; whoever does what it says and
// asks again comes to an end. It never looks at a clock, a disk or the store.
package plan

import (
	"time"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// View is what a leader knows of one partition.
type View struct {
	Config Config
	Local  Local
	Bucket Bucket

	LeaderEpoch wire.LeaderEpoch
	Internal    bool // an internal topic: all live data stays here (safety.md 25)
	// Confirmed: the controller has confirmed this leader epoch within the session time. Without it nothing in the bucket is
	// dropped (safety.md 23).
	Confirmed bool
	// ClockKnown: the store's Date was seen once; ClockSkew is what the local clock was ahead of it the last time.
	ClockKnown bool
	ClockSkew  time.Duration
	// Copying are the bases of the local segments whose copies are under way.
	Copying []wire.Offset
	// Closing: a clean stop; nothing is appended any more, and everything is to go to the bucket.
	Closing bool
}

// Config are the settings in force, of the topic and the broker. Sizes are in bytes.
type Config struct {
	Tiered          bool // remote.storage.enable
	CopyDisabled    bool // remote.log.copy.disable
	DeleteOnDisable bool // remote.log.delete.on.disable
	CleanupDelete   bool // cleanup.policy contains delete
	CleanupCompact  bool // cleanup.policy contains compact

	RetentionMs         int64 // -1: no limit
	RetentionBytes      int64 // -1: no limit
	LocalRetentionMs    int64 // -2: as RetentionMs; -1: no limit
	LocalRetentionBytes int64 // -2: as RetentionBytes; -1: no limit
	CopyLagMs           int64 // remote.copy.lag.ms: 0: none; -1: as LocalRetentionMs
	CopyLagBytes        int64 // remote.copy.lag.bytes: 0: none; -1: as LocalRetentionBytes

	MaxUnsealed time.Duration // tier.max.unsealed.ms
	DeleteGrace time.Duration // tier.delete.grace.ms
}

// Local is the log as it lies here.
type Local struct {
	LogStart         wire.Offset
	Start            wire.Offset // the first offset that is here
	HighWatermark    wire.Offset
	LastStableOffset wire.Offset
	End              wire.Offset
	Segments         []LocalSegment // oldest first; the last one is active
	UnsealedSince    time.Time      // of the oldest append to the active segment; zero while it is empty
}

// LocalSegment is a segment on disk.
type LocalSegment struct {
	Base     wire.Offset
	Next     wire.Offset // exclusive
	Size     int64
	LatestMs int64 // the largest timestamp, or the file's time where the records have none
	Damaged  bool  // it can't be copied
}

// Bucket is the manifest in short. All but Read is zero until it was read.
type Bucket struct {
	// Read: the manifest was read, and its lineage is the log's. The store may be away since.
	Read     bool
	LogStart wire.Offset
	End      wire.Offset     // the tiered end, exclusive
	Oldest   []RemoteSegment // the oldest live segments, oldest first; a page of them will do
	Segments int             // live
	Bytes    int64           // of the live segments' .log objects
	Tail     int             // of the live segments, those that are in no page
	Dropped  []Dropped       // waiting for their deletion, in the order in which they were dropped
	Closed   bool            // the last entry says that the log ends at End
}

// RemoteSegment is a live segment of the manifest.
type RemoteSegment struct {
	Start        wire.Offset
	End          wire.Offset // exclusive
	Size         int64
	MaxTimestamp int64 // -1 when the records have none
	UploadedMs   int64
}

// Dropped is an object that no reader is sent to any more.
type Dropped struct {
	TimeMs int64
}

// Kind says what a Task is.
type Kind int8

// The kinds of tasks. A plan has them in the order in which they are to be done; whoever can't do one of the local kinds or
// can't commit asks again later.
const (
	MoveStart     Kind = iota + 1 // raise the log start here to Offset: by retention, or since the manifest says so. Needs no store
	DeleteLocal                   // let the log retain: there are segments that may go
	Seal                          // begin a new active segment
	RecordStart                   // commit that the log starts at Offset
	RecordLost                    // commit that [Offset, End) is lost: nobody has it. An alarm
	Drop                          // commit that the oldest Count live segments are dropped
	Copy                          // copy the local segment that begins at Segment; it serves [Offset, End)
	Page                          // move the oldest Count segments of the tail into a page
	DeleteObjects                 // delete the objects of the first Count dropped ones, and commit that they are gone
	Close                         // commit that the log ends at Offset
)

// Task is something to do.
type Task struct {
	Kind    Kind
	Segment wire.Offset
	Offset  wire.Offset
	End     wire.Offset // exclusive
	Count   int
	Why     string // for the log
}

// Plan says what is to be done next, in order. It is empty when there is nothing to do until something changes or NextWake.
func Plan(now time.Time, v View) []Task { return nil }

// NextWake is when time alone makes a new plan worth while; zero if it does not.
func NextWake(now time.Time, v View) time.Time { return time.Time{} }

// Reason says why a segment is kept, and until when.
type Reason struct {
	Remote bool // the copy in the bucket; else the one here
	Start  wire.Offset
	End    wire.Offset // exclusive
	Size   int64
	Why    string
	Until  time.Time // when it goes by time alone; zero if that can't be told
}

// Explain says for each local segment and each of Bucket.Oldest why it is kept, and until when.
func Explain(now time.Time, v View) []Reason { return nil }
