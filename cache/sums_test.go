package cache

import (
	"math/rand/v2"
	"testing"

	"github.com/tidemark-io/tidemark/broker/vfs"
)

func TestChecksumsOfRangesThatBeginAndEndAnywhere(t *testing.T) {
	const blockBytes, size = 5*pieceBytes + 100, 3*(5*pieceBytes+100) + 2*pieceBytes + 7
	large := func(o *Options) {
		inline(o)
		o.Plain, o.BlockBytes, o.RangeBytes, o.MemoryBytes = true, blockBytes, blockBytes, 32*blockBytes
	}
	disk := func(o *Options) {
		o.FS, o.Dir, o.DiskBytes, o.MemoryBytes = vfs.NewMem(), "/cache", 8*blockBytes, 0
	}
	for name, edits := range map[string][]func(*Options){"memory": {large}, "disk": {large, disk}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, edits...)
			o := r.bucket.put("a", size)
			rng := rand.New(rand.NewPCG(1, 1))
			for range 500 {
				from := rng.Int64N(size)
				r.read(o, from, from+1+rng.Int64N(size-from))
			}
		})
	}
}
