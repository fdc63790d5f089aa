package manifest

import "github.com/tidemark-io/tidemark/broker/wire"

// Record is a change of a manifest, as entries of the chain hold it. The types are in this file; in JSON each is one flat
// object whose type comes first. Apply refuses what a correct leader could not have written.
type Record interface{ recordType() string }

// AddRecord adds a segment at the end, which its range has to begin at. The name's epoch is that of the entry (safety rule 22).
type AddRecord struct{ Segment }

// StartRecord moves the log start up. If that leaves the tiered end behind, the end moves along: what lies between was never
// uploaded, and total retention has taken it (safety rule 23).
type StartRecord struct {
	LogStart wire.Offset `json:"log_start"`
}

// DropRecord takes the oldest live segments, which lie wholly below the log start, off the list. Their objects stay, as
// dropped, until a DeletedRecord.
type DropRecord struct {
	Segments []DroppedRange `json:"segments"` // oldest first
	TimeMs   int64          `json:"time_ms"`
}

// DroppedRange is a segment that a record takes off the list.
type DroppedRange struct {
	Name
	Start   wire.Offset `json:"start"`
	End     wire.Offset `json:"end"`
	Size    int64       `json:"size"` // of its .log object, in bytes; of a page, of that object
	AuxSize int64       `json:"aux_size,omitempty"`
}

// DeletedRecord says that dropped objects are gone.
type DeletedRecord struct {
	Segments []Name `json:"segments,omitempty"`
	Pages    []Name `json:"pages,omitempty"`
}

// CutRecord moves the end back, after an unclean election: from End on the manifest tells another history than the leader's
// log (safety rule 18).
type CutRecord struct {
	End      wire.Offset    `json:"end"`
	Segments []DroppedRange `json:"segments,omitempty"` // wholly behind End: they are dropped; oldest first
	Clipped  *Segment       `json:"clipped,omitempty"`  // the one that End lies in, as it is from now on
	TimeMs   int64          `json:"time_ms"`
}

// LostRecord says that a range of offsets that begins at the end is lost for good. The end moves over it (safety rule 19).
type LostRecord struct {
	Start wire.Offset `json:"start"`
	End   wire.Offset `json:"end"` // exclusive
}

// CloseRecord says that the partition's log ends at the manifest's end: all of it is in the bucket. It holds until the next
// entry.
type CloseRecord struct {
	End wire.Offset `json:"end"`
}

// PageRecord moves the oldest segments that are in no page yet into a page object.
type PageRecord struct{ Page }

// Page is a page object and the part of it that is live.
type Page struct {
	Name                     // Base is the start of the first segment that it was made of
	Start        wire.Offset `json:"start"`    // of the first live segment
	End          wire.Offset `json:"end"`      // of the last one
	Segments     int         `json:"segments"` // how many are live
	Bytes        int64       `json:"bytes"`    // of their .log objects
	AuxBytes     int64       `json:"aux_bytes"`
	MaxTimestamp int64       `json:"max_timestamp"` // no live segment has a later one
	Size         int64       `json:"size"`          // of the page object, in bytes
	CRC          Checksum    `json:"crc32c"`        // of the page object
	SHA256       string      `json:"sha256"`        // of the page object, in hex
}

func (*AddRecord) recordType() string     { return "add" }
func (*StartRecord) recordType() string   { return "start" }
func (*DropRecord) recordType() string    { return "drop" }
func (*DeletedRecord) recordType() string { return "deleted" }
func (*CutRecord) recordType() string     { return "cut" }
func (*LostRecord) recordType() string    { return "lost" }
func (*CloseRecord) recordType() string   { return "close" }
func (*PageRecord) recordType() string    { return "page" }
