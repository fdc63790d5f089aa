package manifest

import (
	"encoding/binary"
	"encoding/hex"
	"sort"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// packed is a page in memory: what look-ups search as columns, all else as bytes. It takes some 60 bytes a
// segment where all is as usual.
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
		last := i+1 == len(segments)
		b = appendPacked(b, s, !last && segments[i+1].Start == s.End)
	}
	p.rest = append(make([]byte, 0, len(b)), b...)
	return p
}

// The first byte of a packed segment says what is as usual, and left out.
const (
	aborted = 1 << iota
	clipped
	hashed
	startsAtBase
	endsAtNext   // its end is the next one's start
	ownEpochOnly // the lineage is the epoch of the uploader
	hexNonce     // 16 bytes in lower-case hex
)

func appendPacked(b []byte, s Segment, contiguous bool) []byte {
	at := len(b)
	b = append(b, 0)
	if contiguous {
		b[at] |= endsAtNext
	} else {
		b = binary.AppendUvarint(b, uint64(s.End-s.Start))
	}
	if s.Base == s.Start {
		b[at] |= startsAtBase
	} else {
		b = binary.AppendUvarint(b, uint64(s.Start-s.Base))
	}
	b = binary.AppendUvarint(b, uint64(s.Epoch))
	if raw, err := hex.DecodeString(s.Nonce); err == nil && len(raw) == 16 && hex.EncodeToString(raw) == s.Nonce {
		b[at] |= hexNonce
		b = append(b, raw...)
	} else {
		b = append(append(b, byte(len(s.Nonce))), s.Nonce...)
	}
	b = binary.AppendUvarint(b, uint64(s.Size))
	b = binary.AppendUvarint(b, uint64(s.AuxSize))
	b = binary.LittleEndian.AppendUint32(b, uint32(s.CRC))
	b = binary.LittleEndian.AppendUint32(b, uint32(s.AuxCRC))
	b = binary.AppendUvarint(b, uint64(s.MaxTimestamp-s.MinTimestamp))
	b = binary.AppendVarint(b, s.UploadedMs-s.MaxTimestamp)
	if s.Aborted {
		b[at] |= aborted
	}
	if s.Clipped {
		b[at] |= clipped
	}
	if s.SHA256 != "" {
		b[at] |= hashed
		sum, _ := hex.DecodeString(s.SHA256) // checked before
		b = append(b, sum...)
	}
	if len(s.Epochs) == 1 && s.Epochs[0].Epoch == s.Epoch {
		b[at] |= ownEpochOnly
		return b
	}
	b = binary.AppendUvarint(b, uint64(len(s.Epochs)))
	for _, e := range s.Epochs {
		b = binary.AppendUvarint(b, uint64(e.Epoch))
		b = binary.AppendUvarint(b, uint64(e.Start-s.Start))
	}
	return b
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

// segment unpacks the i-th segment.
func (p *packed) segment(i int) Segment {
	u := unpacker{p.rest[p.at[i]:]}
	flags := u.take(1)[0]
	s := Segment{Start: p.starts[i], MaxTimestamp: p.maxTimes[i], Aborted: flags&aborted != 0, Clipped: flags&clipped != 0}
	if flags&endsAtNext != 0 {
		s.End = p.starts[i+1]
	} else {
		s.End = s.Start + wire.Offset(u.uint())
	}
	if s.Base = s.Start; flags&startsAtBase == 0 {
		s.Base -= wire.Offset(u.uint())
	}
	s.Epoch = wire.LeaderEpoch(u.uint())
	if flags&hexNonce != 0 {
		s.Nonce = hex.EncodeToString(u.take(16))
	} else {
		s.Nonce = string(u.take(int(u.take(1)[0])))
	}
	s.Size, s.AuxSize = u.uint(), u.uint()
	s.CRC, s.AuxCRC = Checksum(binary.LittleEndian.Uint32(u.take(4))), Checksum(binary.LittleEndian.Uint32(u.take(4)))
	s.MinTimestamp = s.MaxTimestamp - u.uint()
	s.UploadedMs = s.MaxTimestamp + u.int()
	if flags&hashed != 0 {
		s.SHA256 = hex.EncodeToString(u.take(32))
	}
	if flags&ownEpochOnly != 0 {
		s.Epochs = []EpochStart{{s.Epoch, s.Start}}
		return s
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
	if u.take(1)[0]&endsAtNext != 0 {
		return p.starts[i+1]
	}
	return p.starts[i] + wire.Offset(u.uint())
}

// live is the part of a page that a state has on its list.
type live struct {
	*packed
	first, next int // of the segments
}

func (p *packed) live(of Page) live {
	l := live{packed: p, next: len(p.starts)}
	if l.next > 0 && of.Start <= p.starts[0] && of.End >= p.end(l.next-1) {
		return l // most often
	}
	l.first = sort.Search(len(p.starts), func(i int) bool { return p.starts[i] >= of.Start })
	l.next = sort.Search(len(p.starts), func(i int) bool { return p.end(i) > of.End })
	return l
}

// endingAbove is the first segment that ends above the offset, next where there is none.
func (l live) endingAbove(offset wire.Offset) int {
	i := l.first + sort.Search(l.next-l.first, func(i int) bool { return l.starts[l.first+i] > offset })
	if i > l.first && l.end(i-1) > offset {
		return i - 1
	}
	return i
}
