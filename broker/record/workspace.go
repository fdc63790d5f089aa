package record

import (
	"runtime"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

const (
	// windowSize is how much of an unfolding body lies in memory while records are visited.
	windowSize = 64 << 10
	// keptBuffer is the largest buffer that waits in a pool for its next use.
	keptBuffer = 1 << 20
)

// workspace is what compressing or decompressing one batch needs. There are as many as processors, so that neither many
// connections nor what their batches claim to need adds up: the next batch waits for one that is being worked on, which
// is never longer than a batch takes. A holder must not wait for another workspace.
type workspace struct {
	window [windowSize]byte
	block  []byte // one block of snappy

	gzipReader *gzip.Reader
	lz4Reader  *lz4.Reader
	zstdReader *zstd.Decoder

	gzipWriter *gzip.Writer
	gzipLevel  int
	lz4Writer  *lz4.Writer
	zstdWriter *zstd.Encoder
	zstdLevel  zstd.EncoderLevel
}

var workspaces = func() chan *workspace {
	slots := make(chan *workspace, runtime.GOMAXPROCS(0))
	for range cap(slots) {
		slots <- nil // made when first taken
	}
	return slots
}()

func takeWorkspace() *workspace {
	if w := <-workspaces; w != nil {
		return w
	}
	return new(workspace)
}

// release returns the workspace, without its references to a batch.
func (w *workspace) release() {
	if cap(w.block) > keptBuffer {
		w.block = nil
	}
	workspaces <- w
}
