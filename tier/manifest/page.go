package manifest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/crc32"
)

const (
	// defaultPageSegments is how many segments a page holds: some 300 KB of JSON, 60 KB in memory.
	defaultPageSegments = 1000
	// pageBytesMax bounds what is read as a page; a segment with a thousand leader epochs takes 40 KB.
	pageBytesMax = 64 << 20
	pageVersion  = 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encodePage makes a page object: JSON with a line for each segment.
func encodePage(segments []Segment) ([]byte, error) {
	b := fmt.Appendf(nil, `{"version":%d,"segments":[`, pageVersion)
	for i, s := range segments {
		text, err := json.Marshal(s)
		if err != nil {
			return nil, fmt.Errorf("encode page: %w", err)
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, '\n'), text...)
	}
	return append(b, "\n]}\n"...), nil
}

// decodePage reads a page object. All of its segments come back, also those that are not live any more; the live ones have to be
// what p says.
func decodePage(body []byte, p Page) ([]Segment, error) {
	sum := sha256.Sum256(body)
	if crc := Checksum(crc32.Checksum(body, castagnoli)); int64(len(body)) != p.Size || crc != p.CRC || hex.EncodeToString(sum[:]) != p.SHA256 {
		return nil, fmt.Errorf("%d bytes with checksum %s are not the page of %d with %s", len(body), crc, p.Size, p.CRC)
	}
	var v struct {
		Version  int       `json:"version"`
		Segments []Segment `json:"segments"`
	}
	if err := decodeStrictly(bytes.NewReader(body), &v); err != nil {
		return nil, err
	}
	if v.Version != pageVersion {
		return nil, fmt.Errorf("format version %d, this program knows %d", v.Version, pageVersion)
	}
	at := p.Base
	for _, s := range v.Segments {
		if err := s.check(); err != nil {
			return nil, err
		}
		if s.Start < at {
			return nil, fmt.Errorf("segment [%d, %d) behind %d", s.Start, s.End, at)
		}
		at = s.End
	}
	return v.Segments, p.checkLive(v.Segments)
}

// checkLive compares the live segments among those of the page object with what the state knows of them.
func (p Page) checkLive(all []Segment) error {
	left := p
	for _, s := range all {
		if s.Start < p.Start || s.End > p.End {
			continue
		}
		if s.MaxTimestamp > p.MaxTimestamp {
			return fmt.Errorf("segment at %d has timestamp %d, the page at most %d", s.Start, s.MaxTimestamp, p.MaxTimestamp)
		}
		left.Segments, left.Bytes, left.AuxBytes = left.Segments-1, left.Bytes-s.Size, left.AuxBytes-s.AuxSize
	}
	if left.Segments != 0 || left.Bytes != 0 || left.AuxBytes != 0 {
		return fmt.Errorf("the live segments differ from what is known by %d, %d and %d bytes", left.Segments, left.Bytes, left.AuxBytes)
	}
	return nil
}
