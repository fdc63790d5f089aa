package cache

import (
	"fmt"
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
		o.FS, o.Dir, o.DiskBytes, o.MemoryBytes = vfs.NewMem(), "/cache", 100*blockBytes, 0
	}
	for name, edits := range map[string][]func(*Options){"memory": {large}, "disk": {large, disk}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, edits...)
			o := r.bucket.put("a", size)
			r.read(o, 0, size)
			for i := range 10 { // of the disk's memory all is another's then
				r.read(r.bucket.put(fmt.Sprint("b", i), 4*blockBytes), 0, 4*blockBytes)
			}
			rng := rand.New(rand.NewPCG(1, 1))
			for range 500 {
				from := rng.Int64N(size)
				r.read(o, from, from+1+rng.Int64N(size-from))
			}
			if s := r.cache.Stats(); (s.DiskHits > 0) != (name == "disk") {
				t.Errorf("it was read from elsewhere: %+v", s)
			}
		})
	}
}
