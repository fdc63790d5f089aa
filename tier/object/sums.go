package object

import (
	"hash/crc32"
)

// Summed is a Body that knows its checksums, which spares a store that sends them a pass over it.
type Summed interface {
	Body
	// CRC32C is that of a part of the body; ok is false where it is not known.
	CRC32C(offset, length int64) (sum uint32, ok bool)
}

// sumBlock is how many bytes each sum is of: a part of an upload is a whole number of blocks.
const sumBlock = 1 << 20

// Sums are the CRC32Cs of a body, from one pass over it: what is written to them, in order. The zero value is that of nothing.
type Sums struct {
	blocks []uint32 // all but the last of sumBlock bytes
	size   int64
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Write implements io.Writer; it never fails.
func (s *Sums) Write(p []byte) (int, error) {
	written := len(p)
	for len(p) > 0 {
		in := s.size % sumBlock
		if in == 0 {
			s.blocks = append(s.blocks, 0)
		}
		n := min(int64(len(p)), sumBlock-in)
		last := &s.blocks[len(s.blocks)-1]
		*last = crc32.Update(*last, castagnoli, p[:n])
		s.size += n
		p = p[n:]
	}
	return written, nil
}

// Whole is the sum of all that was written.
func (s *Sums) Whole() uint32 {
	sum, _ := s.CRC32C(0, s.size)
	return sum
}

// CRC32C is the sum of a part that begins with a block and ends with one, or at the end.
func (s *Sums) CRC32C(offset, length int64) (sum uint32, ok bool) {
	end := offset + length
	if offset < 0 || length < 0 || end > s.size || offset%sumBlock != 0 || end%sumBlock != 0 && end != s.size {
		return 0, false
	}
	for at := offset; at < end; at += sumBlock {
		sum = joinSums(sum, s.blocks[at/sumBlock], min(sumBlock, end-at))
	}
	return sum, true
}

// joinSums is the CRC32C of two byte strings, one after the other, from their sums and the length of the second: the sum of the first
// times x^(8*length), plus that of the second, over GF(2), modulo the polynomial. Bits are reversed: 1<<31 stands for 1.
func joinSums(first, second uint32, length int64) uint32 {
	power, square := uint32(1<<31), uint32(1<<23) // 1, and x^8
	for n := length; n > 0; n >>= 1 {
		if n&1 == 1 {
			power = multiply(power, square)
		}
		square = multiply(square, square)
	}
	return multiply(first, power) ^ second
}

func multiply(a, b uint32) (product uint32) {
	for ; a != 0; a <<= 1 {
		if a&(1<<31) != 0 {
			product ^= b
		}
		if b&1 == 1 {
			b = b>>1 ^ crc32.Castagnoli
		} else {
			b >>= 1
		}
	}
	return product
}
