package record

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

const (
	// xerialBlock is how much the Java library compresses at a time.
	xerialBlock = 32 << 10
	// lz4FastLevel is the level that stands for the fast compressor in Kafka, which counts its others from 1 to 17.
	lz4FastLevel = 9
)

// compress appends src, compressed, to dst.
func compress(dst, src []byte, how Compression) ([]byte, error) {
	if how.Codec == None {
		return append(dst, src...), nil
	}
	w := takeWorkspace()
	defer w.release()
	switch how.Codec {
	case Snappy:
		return w.appendXerial(dst, src), nil
	case Zstd:
		encoder, err := w.zstdEncoder(how.Level)
		if err != nil {
			return nil, err
		}
		return encoder.EncodeAll(src, dst), nil
	}
	out := bytes.NewBuffer(dst)
	var to io.WriteCloser
	var err error
	switch how.Codec {
	case Gzip:
		to, err = w.gzipEncoder(out, how.Level)
	case LZ4:
		to, err = w.lz4Encoder(out, how.Level)
	default:
		err = fmt.Errorf("%w: %v", errCodec, how.Codec)
	}
	if err != nil {
		return nil, err
	}
	if _, err := to.Write(src); err != nil {
		return nil, err
	}
	err = to.Close()
	return out.Bytes(), err
}

func (w *workspace) gzipEncoder(out io.Writer, level int) (*gzip.Writer, error) {
	if level == 0 {
		level = gzip.DefaultCompression
	}
	if w.gzipWriter != nil && w.gzipLevel == level {
		w.gzipWriter.Reset(out)
		return w.gzipWriter, nil
	}
	encoder, err := gzip.NewWriterLevel(out, level)
	if err != nil {
		return nil, err
	}
	w.gzipWriter, w.gzipLevel = encoder, level
	return encoder, nil
}

// lz4Encoder writes frames as Java does: independent blocks of 64 KiB, no checksum of the content.
func (w *workspace) lz4Encoder(out io.Writer, level int) (*lz4.Writer, error) {
	if w.lz4Writer == nil {
		w.lz4Writer = lz4.NewWriter(nil)
	}
	w.lz4Writer.Reset(out)
	strength := lz4.Fast
	if level != 0 && level != lz4FastLevel {
		strength = lz4.CompressionLevel(1 << (8 + min(max(level, 1), 9)))
	}
	return w.lz4Writer, w.lz4Writer.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false),
		lz4.CompressionLevelOption(strength))
}

func (w *workspace) zstdEncoder(level int) (*zstd.Encoder, error) {
	strength := zstd.SpeedDefault
	if level != 0 {
		strength = zstd.EncoderLevelFromZstd(level)
	}
	if w.zstdWriter != nil && w.zstdLevel == strength {
		return w.zstdWriter, nil
	}
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(strength),
		zstd.WithWindowSize(zstdWindow))
	if err != nil {
		return nil, err
	}
	w.zstdWriter, w.zstdLevel = encoder, strength
	return encoder, nil
}

func (w *workspace) appendXerial(dst, src []byte) []byte {
	dst = append(dst, xerialMagic...)
	dst = binary.BigEndian.AppendUint32(dst, 1) // version
	dst = binary.BigEndian.AppendUint32(dst, 1) // the oldest version that can read it
	for len(src) > 0 {
		chunk := src[:min(len(src), xerialBlock)]
		src = src[len(chunk):]
		w.block = snappy.Encode(w.block[:cap(w.block)], chunk)
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(w.block)))
		dst = append(dst, w.block...)
	}
	return dst
}
