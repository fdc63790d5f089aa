package cache

import "hash/crc32"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// pieceBytes is of how much a block keeps a checksum, taken as the bytes come, while the processor's caches have them: whoever
// verifies them much later would have to fetch them from memory again.
const pieceBytes = 4 << 10

// sumPieces are the CRC32C of a block's whole pieces.
func sumPieces(data []byte) []uint32 {
	sums := make([]uint32, 0, len(data)/pieceBytes)
	for ; len(data) >= pieceBytes; data = data[pieceBytes:] {
		sums = append(sums, crc32.Checksum(data[:pieceBytes], castagnoli))
	}
	return sums
}

// behind is the CRC32C of what has the first one and a piece with the second one behind it.
func behind(crc, piece uint32) uint32 {
	return shifts[0][byte(crc)] ^ shifts[1][byte(crc>>8)] ^ shifts[2][byte(crc>>16)] ^ shifts[3][byte(crc>>24)] ^ piece
}

// shifts is what a piece of zeros makes of each byte of a checksum, without what the zeros alone come to: a checksum is linear.
var shifts = func() (t [4][256]uint32) {
	zeros := make([]byte, pieceBytes)
	alone := crc32.Checksum(zeros, castagnoli)
	for i := range t {
		for bit := range 8 {
			one := crc32.Update(1<<(8*i+bit), castagnoli, zeros) ^ alone
			for rest := range 1 << bit {
				t[i][1<<bit|rest] = t[i][rest] ^ one
			}
		}
	}
	return t
}()

// updated is the CRC32C of what has crc and a part of a block in memory behind it.
func (b *block) updated(crc uint32, from, to int64) uint32 {
	first, end := (from+pieceBytes-1)/pieceBytes, min(to/pieceBytes, int64(len(b.sums)))
	if first >= end {
		return crc32.Update(crc, castagnoli, b.buf[from:to])
	}
	crc = crc32.Update(crc, castagnoli, b.buf[from:first*pieceBytes])
	for _, sum := range b.sums[first:end] {
		crc = behind(crc, sum)
	}
	return crc32.Update(crc, castagnoli, b.buf[end*pieceBytes:to])
}
