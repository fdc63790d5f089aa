package object_test

import (
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"github.com/tidemark-io/tidemark/tier/object"
)

// TestSumsOfPartsAreThoseOfTheirBytes: whatever pieces a body is written in, and for each part that is known.
func TestSumsOfPartsAreThoseOfTheirBytes(t *testing.T) {
	const block = 1 << 20
	table := crc32.MakeTable(crc32.Castagnoli)
	rng := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{0, 1, block - 1, block, block + 1, 5*block + 12345} {
		body := make([]byte, size)
		for i := range body {
			body[i] = byte(rng.Uint32())
		}
		var s object.Sums
		for rest := body; len(rest) > 0; {
			n := min(len(rest), 1+rng.IntN(3*block/2))
			_, _ = s.Write(rest[:n])
			rest = rest[n:]
		}
		if got, want := s.Whole(), crc32.Checksum(body, table); got != want {
			t.Errorf("%d bytes: %08x, want %08x", size, got, want)
		}
		for offset := 0; offset < size; offset += block {
			for _, end := range []int{offset + block, offset + 3*block, size} {
				if end > size {
					continue
				}
				got, ok := s.CRC32C(int64(offset), int64(end-offset))
				if want := crc32.Checksum(body[offset:end], table); !ok || got != want {
					t.Errorf("%d to %d of %d bytes: %08x, %v, want %08x", offset, end, size, got, ok, want)
				}
			}
		}
	}
	var s object.Sums
	_, _ = s.Write(make([]byte, 2*block+5))
	for _, r := range [][2]int64{{1, block}, {0, block + 1}, {0, 2*block + 6}, {-block, block}, {block, -block}, {2 * block, 4}} {
		if _, ok := s.CRC32C(r[0], r[1]); ok {
			t.Errorf("%v is known", r)
		}
	}
}
