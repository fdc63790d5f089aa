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
	if len(b) > 1 {
		if v, n := shortVarint(uint64(b[0]) | uint64(b[1])<<8); n > 0 {
			return v, int(n)
		}
	}
	return readLongVarint(b)
}

// readVarlong reads a zigzag varint of up to ten bytes; n is 0 when b holds none.
func readVarlong(b []byte) (v int64, n int) {
	v, n = binary.Varint(b)
	return v, max(n, 0)
}

// shortVarint reads a zigzag varint of one or two bytes at the low end of word; n is 0 for a longer one.
func shortVarint(word uint64) (v int32, n uint) {
	if word&0x80 == 0 {
		return unzigzag(uint32(word & 0x7f)), 1
	}
	if word&0x8000 == 0 {
		return unzigzag(uint32(word&0x7f | word>>1&0x3f80)), 2
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
