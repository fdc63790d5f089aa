package sidecar

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math"
	"strconv"

	"github.com/tidemark-io/tidemark/broker/log"
)

// version is the one that this code reads and writes.
const version = 1

// The names of the sections, in the order in which they are written. A reader passes over names that it does not know.
const (
	offsetIndex      = "offset_index"
	timeIndex        = "time_index"
	transactionIndex = "transaction_index"
	producerSnapshot = "producer_snapshot"
	leaderEpochs     = "leader_epochs"
)

const (
	headerSize        = len(Magic) + 8 // magic, then length and CRC-32C of the directory
	directoryBytesMax = 64 << 10
	sectionsMax       = 64
)

// directory is the JSON that says what lies behind it.
type directory struct {
	Version  int       `json:"version"`
	Segment  described `json:"segment"`
	Sections []section `json:"sections"`
}

// described is a segment with its checksum as JSON has it.
type described struct {
	Segment
	CRC checksum `json:"crc32c"`
}

// section is a part of the object; Offset counts from the first byte behind the directory.
type section struct {
	Name   string   `json:"name"`
	Offset int64    `json:"offset"`
	Length int64    `json:"length"`
	CRC    checksum `json:"crc32c"`
}

// checksum is a CRC-32C; in JSON it is eight hex digits.
type checksum uint32

func checksumOf(b []byte) checksum { return checksum(crc32.Checksum(b, castagnoli)) }

func (c checksum) String() string { return fmt.Sprintf("%08x", uint32(c)) }

// MarshalText writes the form of String.
func (c checksum) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads the form of String.
func (c *checksum) UnmarshalText(text []byte) error {
	v, err := strconv.ParseUint(string(text), 16, 32)
	if err != nil || len(text) != 8 {
		return fmt.Errorf("checksum %q is not 8 hex digits", text)
	}
	*c = checksum(v)
	return nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrDamaged}, args...)...)
}

// Encode makes the object. Contents that Decode would refuse are an error: nothing is uploaded that can't be read.
func Encode(c Contents) ([]byte, error) {
	parts := []struct {
		name string
		data []byte
	}{
		{offsetIndex, c.OffsetIndex},
		{timeIndex, c.TimeIndex},
		{transactionIndex, c.TransactionIndex},
		{producerSnapshot, c.ProducerSnapshot},
		{leaderEpochs, formatEpochs(c.Epochs)},
	}
	d := directory{Version: version, Segment: described{c.Segment, checksum(c.Segment.CRC)}}
	var total int64
	for _, p := range parts {
		d.Sections = append(d.Sections, section{p.name, total, int64(len(p.data)), checksumOf(p.data)})
		total += int64(len(p.data))
	}
	text, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("encode sidecar: %w", err)
	}
	if total > BytesMax-directoryBytesMax {
		return nil, fmt.Errorf("encode sidecar: %d bytes are more than %d", total, BytesMax)
	}
	b := make([]byte, 0, headerSize+len(text)+int(total))
	b = append(b, Magic...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(text)))
	b = binary.BigEndian.AppendUint32(b, uint32(checksumOf(text)))
	b = append(b, text...)
	for _, p := range parts {
		b = append(b, p.data...)
	}
	if _, err := Decode(b); err != nil {
		return nil, fmt.Errorf("encode sidecar: %w", err)
	}
	return b, nil
}

// formatEpochs writes Kafka's leader-epoch-checkpoint.
func formatEpochs(epochs []log.EpochEntry) []byte {
	b := fmt.Appendf(nil, "0\n%d\n", len(epochs))
	for _, e := range epochs {
		b = strconv.AppendInt(b, int64(e.Epoch), 10)
		b = append(b, ' ')
		b = strconv.AppendInt(b, int64(e.Start), 10)
		b = append(b, '\n')
	}
	return b
}

// Decode reads a whole object and checks every part of it. The result keeps data, which must not be changed.
func Decode(data []byte) (*Sidecar, error) {
	d, body, err := decodeDirectory(data)
	if err != nil {
		return nil, err
	}
	sections, err := cutSections(d.Sections, body)
	if err != nil {
		return nil, err
	}
	segment := d.Segment.Segment
	segment.CRC = uint32(d.Segment.CRC)
	s := &Sidecar{segment: segment, size: len(data), offsets: sections[offsetIndex], times: sections[timeIndex], producer: sections[producerSnapshot]}
	if s.aborted, err = log.DecodeTransactionIndex(sections[transactionIndex]); err != nil {
		return nil, damaged("transaction index: %w", err)
	}
	if s.epochs, err = log.ParseEpochCheckpoint(sections[leaderEpochs]); err != nil {
		return nil, damaged("leader epochs: %w", err)
	}
	if _, err := log.DecodeProducerSnapshot(s.producer); err != nil {
		return nil, damaged("producer snapshot: %w", err)
	}
	for _, err := range []error{checkSegment(segment), checkOffsetIndex(s.offsets, segment), checkTimeIndex(s.times, segment)} {
		if err != nil {
			return nil, err
		}
	}
	return s, nil
}

func decodeDirectory(data []byte) (d directory, body []byte, err error) {
	if len(data) < headerSize || string(data[:len(Magic)]) != Magic {
		return d, nil, damaged("%d bytes that do not begin with %s", len(data), Magic)
	}
	if len(data) > BytesMax {
		return d, nil, damaged("%d bytes are more than %d", len(data), BytesMax)
	}
	length, sum := binary.BigEndian.Uint32(data[len(Magic):]), checksum(binary.BigEndian.Uint32(data[len(Magic)+4:]))
	if length > directoryBytesMax || int(length) > len(data)-headerSize {
		return d, nil, damaged("a directory of %d bytes in %d", length, len(data))
	}
	text, body := data[headerSize:headerSize+int(length)], data[headerSize+int(length):]
	if got := checksumOf(text); got != sum {
		return d, nil, damaged("checksum of the directory is %s, not %s", got, sum)
	}
	if err := json.Unmarshal(text, &d); err != nil {
		return d, nil, damaged("directory: %w", err)
	}
	if d.Version != version {
		return d, nil, fmt.Errorf("sidecar has format version %d, this program knows %d", d.Version, version)
	}
	return d, body, nil
}

// cutSections finds the sections in the bytes behind the directory. All that this version knows have to be there.
func cutSections(sections []section, body []byte) (map[string][]byte, error) {
	if len(sections) > sectionsMax {
		return nil, damaged("%d sections", len(sections))
	}
	found := make(map[string][]byte, len(sections))
	for _, s := range sections {
		if s.Offset < 0 || s.Length < 0 || s.Offset > int64(len(body)) || s.Length > int64(len(body))-s.Offset {
			return nil, damaged("section %q is at %d with %d bytes, of %d", s.Name, s.Offset, s.Length, len(body))
		}
		if _, twice := found[s.Name]; twice {
			return nil, damaged("section %q is there twice", s.Name)
		}
		part := body[s.Offset : s.Offset+s.Length : s.Offset+s.Length]
		if got := checksumOf(part); got != s.CRC {
			return nil, damaged("checksum of section %q is %s, not %s", s.Name, got, s.CRC)
		}
		found[s.Name] = part
	}
	for _, name := range []string{offsetIndex, timeIndex, transactionIndex, producerSnapshot, leaderEpochs} {
		if _, ok := found[name]; !ok {
			return nil, damaged("section %q is missing", name)
		}
	}
	return found, nil
}

func checkSegment(s Segment) error {
	if s.Base < 0 || s.Start < s.Base || s.End <= s.Start || s.End-s.Base > math.MaxUint32 || s.Size <= 0 || s.Partition < 0 || s.LeaderEpoch < 0 {
		return damaged("segment of partition %d at %d, for [%d, %d), %d bytes, epoch %d", s.Partition, s.Base, s.Start, s.End, s.Size, s.LeaderEpoch)
	}
	return nil
}
