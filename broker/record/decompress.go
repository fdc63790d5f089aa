package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

const (
	// zstdWindow is the largest window of zstd's levels up to 19, and what every decoder should take (RFC 8878).
	zstdWindow = 8 << 20
	// zstdWideWindow is that of level 22, the widest that Java's decoder takes. One batch at a time gets it.
	zstdWideWindow = 128 << 20
	// snappyRatio bounds what snappy can do: its densest element is a copy of 64 bytes in 3.
	snappyRatio = 22
)

var (
	errCodec       = errors.New("unknown compression codec")
	errSnappy      = errors.New("snappy data is damaged")
	errLZ4Frame    = errors.New("lz4 data is no frame of independent blocks")
	wideZstd       = make(chan struct{}, 1)
	xerialMagic    = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}
	lz4FrameMagic  = []byte{0x04, 0x22, 0x4d, 0x18}
	decompressPool = sync.Pool{New: func() any { return new([]byte) }}
)

const (
	xerialHeaderSize = 16   // magic, version, oldest compatible version
	lz4Independent   = 0x20 // in the frame's flags
)

// unfold calls read with a stream of src's content and returns what read returned, or why there is no stream.
func (w *workspace) unfold(codec Codec, src []byte, read func(io.Reader) error) error {
	from := bytes.NewReader(src)
	switch codec {
	case None:
		return read(from)
	case Gzip:
		if w.gzipReader == nil {
			w.gzipReader = new(gzip.Reader)
		}
		if err := w.gzipReader.Reset(from); err != nil {
			return err
		}
		return read(w.gzipReader)
	case Snappy:
		return read(&snappyReader{src: src, space: w})
	case LZ4:
		// Java's decoder takes neither linked blocks nor legacy frames, so that stored ones would stop Java consumers.
		if len(src) < 5 || !bytes.HasPrefix(src, lz4FrameMagic) || src[4]&lz4Independent == 0 {
			return errLZ4Frame
		}
		if w.lz4Reader == nil {
			w.lz4Reader = lz4.NewReader(nil)
		}
		w.lz4Reader.Reset(from)
		err := read(w.lz4Reader)
		w.lz4Reader.Reset(nil)
		return err
	case Zstd:
		return w.unfoldZstd(src, from, read)
	}
	return errCodec
}

func (w *workspace) unfoldZstd(src []byte, from io.Reader, read func(io.Reader) error) error {
	if len(src) == 0 {
		return read(from) // no frame is no content
	}
	var header zstd.Header
	if err := header.Decode(src); err != nil {
		return err
	}
	if header.WindowSize > zstdWindow {
		wideZstd <- struct{}{}
		defer func() { <-wideZstd }()
		decoder, err := newZstdReader(zstdWideWindow)
		if err != nil {
			return err
		}
		defer decoder.Close()
		if err := decoder.Reset(from); err != nil {
			return err
		}
		return read(decoder)
	}
	if w.zstdReader == nil {
		decoder, err := newZstdReader(zstdWindow)
		if err != nil {
			return err
		}
		w.zstdReader = decoder
	}
	if err := w.zstdReader.Reset(from); err != nil {
		return err
	}
	err := read(w.zstdReader)
	_ = w.zstdReader.Reset(nil) // lets go of src
	return err
}

// newZstdReader makes a decoder that works on its caller's goroutine.
func newZstdReader(window uint64) (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(window))
}

// snappyReader reads a bare block, as librdkafka writes it, and the chunks of the Java library (xerial).
type snappyReader struct {
	src     []byte
	space   *workspace
	block   []byte // unfolded and not yet read
	begun   bool
	chunked bool
}

func (r *snappyReader) Read(p []byte) (int, error) {
	for len(r.block) == 0 {
		if err := r.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.block)
	r.block = r.block[n:]
	return n, nil
}

// next unfolds the next block, which may be empty.
func (r *snappyReader) next() error {
	if !r.begun {
		r.begun = true
		if r.chunked = bytes.HasPrefix(r.src, xerialMagic); r.chunked {
			if len(r.src) < xerialHeaderSize {
				return io.ErrUnexpectedEOF
			}
			r.src = r.src[xerialHeaderSize:]
		} else {
			block := r.src
			r.src = nil
			return r.decode(block)
		}
	}
	if len(r.src) == 0 {
		return io.EOF
	}
	if len(r.src) < 4 {
		return io.ErrUnexpectedEOF
	}
	size := binary.BigEndian.Uint32(r.src)
	if uint64(size) > uint64(len(r.src)-4) {
		return io.ErrUnexpectedEOF
	}
	block := r.src[4 : 4+size]
	r.src = r.src[4+size:]
	return r.decode(block)
}

func (r *snappyReader) decode(block []byte) error {
	size, err := snappy.DecodedLen(block)
	if err != nil {
		return err
	}
	if size > snappyRatio*len(block) {
		return errSnappy
	}
	r.space.block, err = snappy.Decode(r.space.block[:cap(r.space.block)], block)
	r.block = r.space.block
	return err
}

// decompress unfolds src into a buffer of the pool, which the caller gives back by recycle. It returns ErrTooLarge past
// limit bytes and ErrCorrupt for everything else that is wrong.
func decompress(codec Codec, src []byte, limit int) (*[]byte, error) {
	buffer := decompressPool.Get().(*[]byte)
	w := takeWorkspace()
	err := w.unfold(codec, src, func(r io.Reader) (err error) {
		*buffer, err = readUpTo((*buffer)[:0], r, limit)
		return err
	})
	w.release()
	if err != nil {
		recycle(buffer)
		if !errors.Is(err, ErrTooLarge) {
			err = fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		return nil, err
	}
	return buffer, nil
}

func recycle(buffer *[]byte) {
	if cap(*buffer) <= keptBuffer {
		decompressPool.Put(buffer)
	}
}

// readUpTo appends all of r to dst, whose growth never runs ahead of what r gives by more than a factor.
func readUpTo(dst []byte, r io.Reader, limit int) ([]byte, error) {
	for {
		if len(dst) == cap(dst) {
			dst = append(dst, make([]byte, max(windowSize, len(dst)))...)[:len(dst)]
		}
		n, err := r.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		if len(dst) > limit {
			return dst, ErrTooLarge
		}
		if err == io.EOF {
			return dst, nil
		}
		if err != nil {
			return dst, err
		}
	}
}
