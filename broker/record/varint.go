package record

import "encoding/binary"

const (
	// maxVarint is the longest encoding of an int32 that Kafka takes.
	maxVarint = 5
	// maxVarlong is the longest encoding of an int64.
	maxVarlong = binary.MaxVarintLen64
)

// readVarint reads a zigzag varint that fits 32 bits; n is 0 when b holds none.
func readVarint(b []byte) (v int32, n int) {
	if u, n := readShort(b, 0); n > 0 {
		return unzigzag(u), n
	}
	return readLongVarint(b)
}

// readVarlong reads a zigzag varint of up to ten bytes; n is 0 when b holds none.
func readVarlong(b []byte) (v int64, n int) {
	if u, n := readShort(b, 0); n > 0 {
		return int64(unzigzag(u)), n
	}
	return readLongVarlong(b)
}

// readShort reads a varint of one or two bytes, as most are; n is 0 for a longer one. It is small enough to be inlined,
// which is what the visit of a record costs or saves.
func readShort(b []byte, at int) (u uint32, n int) {
	if at < len(b) {
		low := b[at]
		if low < 0x80 {
			return uint32(low), 1
		}
		if at++; at < len(b) && b[at] < 0x80 {
			return uint32(low&0x7f) | uint32(b[at])<<7, 2
		}
	}
	return 0, 0
}

func unzigzag(u uint32) int32 { return int32(u>>1) ^ -int32(u&1) }

func readLongVarint(b []byte) (int32, int) {
	v, n := binary.Varint(b[:min(len(b), maxVarint)])
	if n <= 0 || int64(int32(v)) != v {
		return 0, 0
	}
	return int32(v), n
}

func readLongVarlong(b []byte) (int64, int) {
	v, n := binary.Varint(b)
	return v, max(n, 0)
}
