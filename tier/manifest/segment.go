package manifest

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/object"
)

// Name is what the objects of one upload are called. It is never used twice: a retry takes another nonce.
type Name struct {
	Base  wire.Offset      `json:"base"`  // base offset of the segment, as its indexes count
	Epoch wire.LeaderEpoch `json:"epoch"` // of the leader that uploaded it
	Nonce string           `json:"nonce"` // 1 to 64 of [A-Za-z0-9_]
}

// Kind is what an object below a partition's prefix is.
type Kind int8

// The kinds of objects that a manifest names.
const (
	LogObject  Kind = iota + 1 // a segment, byte for byte
	AuxObject                  // its sidecar
	PageObject                 // a page of the manifest
)

const (
	logSuffix  = ".log"
	auxSuffix  = ".aux"
	pageSuffix = ".json"
	pageFolder = "pages/"

	baseDigits    = 20
	nonceBytesMax = 64
)

func (n Name) stem() string { return fmt.Sprintf("%020d-%d-%s", n.Base, n.Epoch, n.Nonce) }

// Key is the key of one of the objects, relative to the partition's prefix and its slash.
func (n Name) Key(kind Kind) string {
	switch kind {
	case AuxObject:
		return n.stem() + auxSuffix
	case PageObject:
		return pageFolder + n.stem() + pageSuffix
	}
	return n.stem() + logSuffix
}

// ParseKey is the inverse of Name.Key; ok is false for keys that Key does not make, as those of the chain.
func ParseKey(key string) (name Name, kind Kind, ok bool) {
	stem := key
	if rest, found := strings.CutSuffix(key, logSuffix); found {
		stem, kind = rest, LogObject
	} else if rest, found := strings.CutSuffix(key, auxSuffix); found {
		stem, kind = rest, AuxObject
	} else if rest, found := strings.CutSuffix(key, pageSuffix); found {
		if stem, found = strings.CutPrefix(rest, pageFolder); !found {
			return Name{}, 0, false
		}
		kind = PageObject
	}
	base, rest, _ := strings.Cut(stem, "-")
	epoch, nonce, _ := strings.Cut(rest, "-")
	b, baseErr := strconv.ParseInt(base, 10, 64)
	e, epochErr := strconv.ParseInt(epoch, 10, 32)
	name = Name{wire.Offset(b), wire.LeaderEpoch(e), nonce}
	if kind == 0 || baseErr != nil || epochErr != nil || !name.valid() || name.Key(kind) != key {
		return Name{}, 0, false
	}
	return name, kind, true
}

func (n Name) valid() bool {
	if n.Base < 0 || n.Epoch < 0 || n.Nonce == "" || len(n.Nonce) > nonceBytesMax {
		return false
	}
	for _, c := range []byte(n.Nonce) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && c != '_' {
			return false
		}
	}
	return true
}

// Prefix is the prefix of a partition's objects, without the slash at its end.
func Prefix(topic string, id wire.TopicID, partition int32) string {
	return fmt.Sprintf("%s/%d", TopicPrefix(topic, id), partition)
}

// topicBytesMax is how much of a topic's name is in its prefix: with its id it fits into a part of a key. A topic's name has up
// to 249 bytes; it is the id that tells topics apart.
const topicBytesMax = object.PartBytesMax - len(".") - len("AAAAAAAAAAAAAAAAAAAAAA")

// TopicPrefix is the prefix of all objects of a topic, without the slash at its end.
func TopicPrefix(topic string, id wire.TopicID) string {
	return fmt.Sprintf("topics/%s.%s", topic[:min(len(topic), topicBytesMax)], id)
}

// Checksum is the CRC-32C of a whole object; in JSON it is eight hex digits.
type Checksum uint32

// String is the checksum in hex.
func (c Checksum) String() string { return fmt.Sprintf("%08x", uint32(c)) }

// MarshalText writes the form of String.
func (c Checksum) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads the form of String.
func (c *Checksum) UnmarshalText(text []byte) error {
	v, err := strconv.ParseUint(string(text), 16, 32)
	if err != nil || len(text) != 8 {
		return fmt.Errorf("checksum %q is not 8 hex digits", text)
	}
	*c = Checksum(v)
	return nil
}

// Segment is a range of offsets and the objects that serve it. Replicas roll their segments at different offsets, so the range
// may begin inside the object; after an unclean election it may end there, too.
type Segment struct {
	Name
	Start        wire.Offset  `json:"start"` // first offset that is served from it, Base or above
	End          wire.Offset  `json:"end"`   // exclusive
	Size         int64        `json:"size"`  // of the .log object, in bytes
	AuxSize      int64        `json:"aux_size"`
	CRC          Checksum     `json:"crc32c"` // of the .log object
	AuxCRC       Checksum     `json:"aux_crc32c"`
	SHA256       string       `json:"sha256,omitempty"` // of the .log object, in hex; reserved (safety rule 34)
	MinTimestamp int64        `json:"min_timestamp"`    // of the batches of the object; -1 without any
	MaxTimestamp int64        `json:"max_timestamp"`
	Epochs       []EpochStart `json:"epochs"`            // lineage of [Start, End); the first begins at Start
	Aborted      bool         `json:"aborted,omitempty"` // the sidecar's transaction index has entries
	Clipped      bool         `json:"clipped,omitempty"` // it was cut at End: see sidecar.Clip
	UploadedMs   int64        `json:"uploaded_ms"`       // by the uploader's clock
}

// Contains tells whether the segment serves the offset.
func (s Segment) Contains(offset wire.Offset) bool { return s.Start <= offset && offset < s.End }
