package manifest

import (
	"encoding/binary"
	"encoding/hex"
	"sort"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// packed is a page in memory: what look-ups search as columns, all else as bytes. It takes 60 bytes a segment where nonces are
// 32 hex digits and a segment has one leader epoch.
type packed struct {
	starts   []wire.Offset
	maxTimes []int64
	at       []uint32 // where in rest each segment begins
	rest     []byte
}

func pack(segments []Segment) *packed {
	p := &packed{
		starts:   make([]wire.Offset, len(segments)),
		maxTimes: make([]int64, len(segments)),
		at:       make([]uint32, len(segments)),
	}
	var b []byte
	for i, s := range segments {
		p.starts[i], p.maxTimes[i], p.at[i] = s.Start, s.MaxTimestamp, uint32(len(b))
		b = binary.AppendUvarint(b, uint64(s.Start-s.Base))
		b = binary.AppendUvarint(b, uint64(s.End-s.Start))
		b = binary.AppendUvarint(b, uint64(s.Epoch))
		b = appendNonce(b, s.Nonce)
		b = binary.AppendUvarint(b, uint64(s.Size))
		b = binary.AppendUvarint(b, uint64(s.AuxSize))
		b = binary.LittleEndian.AppendUint32(b, uint32(s.CRC))
		b = binary.LittleEndian.AppendUint32(b, uint32(s.AuxCRC))
		b = binary.AppendUvarint(b, uint64(s.MaxTimestamp-s.MinTimestamp))
		b = binary.AppendVarint(b, s.UploadedMs-s.MaxTimestamp)
		b = append(b, flags(s))
		if s.SHA256 != "" {
			sum, _ := hex.DecodeString(s.SHA256) // checked before
			b = append(b, sum...)
		}
		b = binary.AppendUvarint(b, uint64(len(s.Epochs)))
		for _, e := range s.Epochs {
			b = binary.AppendUvarint(b, uint64(e.Epoch))
			b = binary.AppendUvarint(b, uint64(e.Start-s.Start))
		}
	}
	p.rest = append(make([]byte, 0, len(b)), b...)
	return p
}

const (
	abortedFlag = 1 << iota
	clippedFlag
	hashFlag
)

func flags(s Segment) (f byte) {
	if s.Aborted {
		f |= abortedFlag
	}
	if s.Clipped {
		f |= clippedFlag
	}
	if s.SHA256 != "" {
		f |= hashFlag
	}
	return f
}

// hexNonce is the length of the nonces that are packed as 16 bytes; it stands in their length's place, above every real length.
const hexNonce = nonceBytesMax + 1

func appendNonce(b []byte, nonce string) []byte {
	if raw, err := hex.DecodeString(nonce); err == nil && len(raw) == 16 && hex.EncodeToString(raw) == nonce {
		return append(append(b, hexNonce), raw...)
	}
	return append(append(b, byte(len(nonce))), nonce...)
}

// unpacker reads what pack has written; that comes from this process's memory, and is right.
type unpacker struct{ b []byte }

func (u *unpacker) uint() int64 {
	v, n := binary.Uvarint(u.b)
	u.b = u.b[n:]
	return int64(v)
}

func (u *unpacker) int() int64 {
	v, n := binary.Varint(u.b)
	u.b = u.b[n:]
	return v
}

func (u *unpacker) take(n int) []byte {
	b := u.b[:n]
	u.b = u.b[n:]
	return b
}

func (u *unpacker) nonce() string {
	n := int(u.take(1)[0])
	if n == hexNonce {
		return hex.EncodeToString(u.take(16))
	}
	return string(u.take(n))
}

// segment unpacks the i-th segment.
func (p *packed) segment(i int) Segment {
	u := unpacker{p.rest[p.at[i]:]}
	s := Segment{Start: p.starts[i], MaxTimestamp: p.maxTimes[i]}
	s.Base = s.Start - wire.Offset(u.uint())
	s.End = s.Start + wire.Offset(u.uint())
	s.Epoch = wire.LeaderEpoch(u.uint())
	s.Nonce = u.nonce()
	s.Size, s.AuxSize = u.uint(), u.uint()
	s.CRC, s.AuxCRC = Checksum(binary.LittleEndian.Uint32(u.take(4))), Checksum(binary.LittleEndian.Uint32(u.take(4)))
	s.MinTimestamp = s.MaxTimestamp - u.uint()
	s.UploadedMs = s.MaxTimestamp + u.int()
	f := u.take(1)[0]
	s.Aborted, s.Clipped = f&abortedFlag != 0, f&clippedFlag != 0
	if f&hashFlag != 0 {
		s.SHA256 = hex.EncodeToString(u.take(32))
	}
	s.Epochs = make([]EpochStart, u.uint())
	for i := range s.Epochs {
		s.Epochs[i] = EpochStart{wire.LeaderEpoch(u.uint()), s.Start + wire.Offset(u.uint())}
	}
	return s
}

// end is where the i-th segment ends.
func (p *packed) end(i int) wire.Offset {
	u := unpacker{p.rest[p.at[i]:]}
	u.uint()
	return p.starts[i] + wire.Offset(u.uint())
}

// live is the part of a page that a state has on its list.
type live struct {
	*packed
	first, next int // of the segments
}

func (p *packed) live(of Page) live {
	l := live{packed: p}
	l.first = sort.Search(len(p.starts), func(i int) bool { return p.starts[i] >= of.Start })
	l.next = sort.Search(len(p.starts), func(i int) bool { return p.end(i) > of.End })
	return l
}

// endingAbove is the first segment that ends above the offset, next where there is none.
func (l live) endingAbove(offset wire.Offset) int {
	return l.first + sort.Search(l.next-l.first, func(i int) bool { return l.end(l.first+i) > offset })
}
