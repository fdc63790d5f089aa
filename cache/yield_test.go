package cache

import (
	"context"
	"io"
	"runtime"
	"sync/atomic"
	"testing"
)

// endless is a body whose bytes are all there already.
type endless struct{ read func() }

func (e endless) Read(b []byte) (int, error) { e.read(); return len(b), nil }

// However fast a store is, a get keeps a processor for a block at a time only: a reader at the end of the log waits no longer.
func TestADownloadLetsOthersInBetweenItsBlocks(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var turns atomic.Int64
	var before []int64 // turns that the bystander had before each block
	const blocks = 16
	r := newRig(t, func(o *Options) {
		o.MemoryBytes, o.RangeBytes = 4*blocks*testBlock, blocks*testBlock
		o.Get = func(context.Context, Object, int64, int64) (io.ReadCloser, error) {
			return io.NopCloser(endless{func() { before = append(before, turns.Load()) }}), nil
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for ctx.Err() == nil {
			turns.Add(1)
			runtime.Gosched()
		}
	}()
	p := r.pin(Object{Key: "a", Size: blocks * testBlock}, 0, blocks*testBlock)
	defer p.Release()
	r.jobs.Wait()
	if len(before) != blocks {
		t.Fatalf("%d reads of %d blocks", len(before), blocks)
	}
	if came := before[blocks-1] - before[0]; came < blocks/2 { // the scheduler owes nobody a strict order
		t.Errorf("others came in between %d times", came)
	}
}
