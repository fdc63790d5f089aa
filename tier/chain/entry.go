package chain

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"strconv"
)

// formatVersion is the version of entries, snapshots and boundaries that this code reads and writes.
const formatVersion = 1

// EntryBytesMax bounds the body of an entry: far above the 512 KiB at which a group commit is sent.
const EntryBytesMax = 8 << 20

// Hash is a SHA-256; in JSON it is written in hex.
type Hash [sha256.Size]byte

// String is the hash in hex.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText writes the form of String.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText reads the form of String.
func (h *Hash) UnmarshalText(text []byte) error {
	if len(text) != hex.EncodedLen(len(h)) {
		return fmt.Errorf("hash of %d characters", len(text))
	}
	_, err := hex.Decode(h[:], text)
	return err
}

// Writer is one run of one broker.
type Writer struct {
	Broker      int32  `json:"broker"`
	Incarnation string `json:"incarnation"`
}

// Entry is one link of a chain, as it is stored. It is never changed once it was read or written.
type Entry struct {
	Version     int               `json:"version"`
	Number      int64             `json:"number"` // from 1 on, without gaps
	Epoch       int64             `json:"epoch"`  // from 1 on; never goes down from entry to entry
	Writer      Writer            `json:"writer"` // one for all entries of an epoch
	Nonce       string            `json:"nonce"`  // of this attempt, never used again
	FirstRecord int64             `json:"first_record"`
	PrevHash    Hash              `json:"prev_hash"`  // of the body of the entry before; zero in the first
	CreatedMs   int64             `json:"created_ms"` // by the writer's clock, for people; nothing is decided by it
	Records     []json.RawMessage `json:"records"`

	hash Hash // of the body
}

// Position is a place in a chain: what the next entry has to follow. The zero Position is before the first entry. Kept on
// disk it is the memory of the highest that was seen (Options.Seen).
type Position struct {
	Number     int64  `json:"number"`
	Epoch      int64  `json:"epoch"`
	Writer     Writer `json:"writer"`
	Hash       Hash   `json:"hash"`        // of the entry's body
	NextRecord int64  `json:"next_record"` // the number of the next entry's first record
}

// Position is the place behind the entry.
func (e Entry) Position() Position {
	return Position{
		Number: e.Number, Epoch: e.Epoch, Writer: e.Writer, Hash: e.hash,
		NextRecord: e.FirstRecord + int64(len(e.Records)),
	}
}

// check tells what keeps e, the entry of the next number, from following p.
func (p Position) check(e Entry) error {
	switch {
	case e.PrevHash != p.Hash:
		return fmt.Errorf("names %s as the entry before, which is %s", e.PrevHash, p.Hash)
	case e.Epoch < p.Epoch:
		return fmt.Errorf("epoch goes down from %d to %d", p.Epoch, e.Epoch)
	case e.Epoch == p.Epoch && e.Writer != p.Writer:
		return fmt.Errorf("epoch %d has two writers, %+v and %+v", e.Epoch, p.Writer, e.Writer)
	case e.FirstRecord != p.NextRecord:
		return fmt.Errorf("first record is %d, not %d", e.FirstRecord, p.NextRecord)
	}
	return nil
}

// encode gives the body of e, and sets its hash.
func (e *Entry) encode() ([]byte, error) {
	writer, err := json.Marshal(e.Writer)
	if err != nil {
		return nil, fmt.Errorf("encode writer: %w", err)
	}
	nonce, err := json.Marshal(e.Nonce)
	if err != nil {
		return nil, fmt.Errorf("encode nonce: %w", err)
	}
	b := fmt.Appendf(nil, `{"version":%d,"number":%d,"epoch":%d,"writer":%s,"nonce":%s,"first_record":%d,"prev_hash":"%s","created_ms":%d,"records":[`,
		formatVersion, e.Number, e.Epoch, writer, nonce, e.FirstRecord, e.PrevHash, e.CreatedMs)
	for i, r := range e.Records {
		if !json.Valid(r) {
			return nil, fmt.Errorf("record %d is not JSON", i)
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '\n')
		b = append(b, r...) // as it is: json.Marshal would rewrite it
	}
	b = seal(append(b, "\n]"...))
	e.Version = formatVersion
	e.hash = sha256.Sum256(b)
	return b, nil
}

// decodeEntry reads the body of the entry with that number. Whether it follows the one before is Position.check's affair.
func decodeEntry(body []byte, number int64) (Entry, error) {
	var e Entry
	if err := unseal(body, &e); err != nil {
		return Entry{}, err
	}
	switch {
	case e.Number != number:
		return Entry{}, fmt.Errorf("has number %d", e.Number)
	case e.Epoch < 1 || e.FirstRecord < 0 || e.Nonce == "":
		return Entry{}, fmt.Errorf("epoch %d, first record %d, nonce %q", e.Epoch, e.FirstRecord, e.Nonce)
	}
	e.hash = sha256.Sum256(body)
	return e, nil
}

// The end of every object of a chain. The checksum covers all bytes before it; a MAC, which is reserved, comes after it
// and covers all bytes before itself.
const (
	checksumField = `,"crc32c":"`
	macField      = `","mac":"`
	bodyEnd       = "\"}\n"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// seal ends a JSON object, whose brace is still open, with its checksum.
func seal(b []byte) []byte {
	sum := crc32.Checksum(b, castagnoli)
	b = append(b, checksumField...)
	b = fmt.Appendf(b, "%08x", sum)
	return append(b, bodyEnd...)
}

// unseal decodes what seal has ended into v, after its version and checksum were found right.
func unseal(body []byte, v any) error {
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(body, &head); err != nil {
		return fmt.Errorf("not JSON: %w", err)
	}
	if head.Version != formatVersion {
		return fmt.Errorf("%w %d, this program knows %d", errVersion, head.Version, formatVersion)
	}
	i := bytes.LastIndex(body, []byte(checksumField))
	end, ok := bytes.CutSuffix(body, []byte(bodyEnd))
	if i < 0 || !ok || len(end) < i+len(checksumField) {
		return fmt.Errorf("no checksum at the end")
	}
	sum, _, _ := bytes.Cut(end[i+len(checksumField):], []byte(macField))
	want, err := strconv.ParseUint(string(sum), 16, 32)
	if err != nil || len(sum) != 8 {
		return fmt.Errorf("checksum %q is not 8 hex digits", sum)
	}
	if got := crc32.Checksum(body[:i], castagnoli); got != uint32(want) {
		return fmt.Errorf("checksum is %08x, not %08x", got, want)
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	return nil
}
