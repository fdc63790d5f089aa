package record

import "encoding/binary"

// readVarlong reads a zigzag varint of up to ten bytes; n is 0 when b holds none.
func readVarlong(b []byte) (v int64, n int) {
	if len(b) > 0 && b[0] < 0x80 {
		return int64(b[0]>>1) ^ -int64(b[0]&1), 1
	}
	return readLongVarlong(b)
}

func readLongVarlong(b []byte) (int64, int) {
	v, n := binary.Varint(b)
	return v, max(n, 0)
}

// maxVarint is the longest encoding of an int32 that Kafka takes.
const maxVarint = 5

// readVarint reads a zigzag varint that fits 32 bits; n is 0 when b holds none.
func readVarint(b []byte) (v int32, n int) {
	if len(b) > 0 && b[0] < 0x80 {
		return int32(b[0]>>1) ^ -int32(b[0]&1), 1
	}
	return readLongVarint(b)
}

func readLongVarint(b []byte) (int32, int) {
	v, n := binary.Varint(b[:min(len(b), maxVarint)])
	if n <= 0 || int64(int32(v)) != v {
		return 0, 0
	}
	return int32(v), n
}

// maxVarlong is the longest encoding of an int64.
const maxVarlong = binary.MaxVarintLen64
