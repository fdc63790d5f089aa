package record

import (
	"errors"
	"fmt"
)

// ErrTooLarge says that a compressed body unfolds to more than the caller allows.
var ErrTooLarge = errors.New("decompressed records are too large")

// Codec is the compression of a batch's body.
type Codec int8

// The codecs, by their number in the attributes.
const (
	None Codec = iota
	Gzip
	Snappy
	LZ4
	Zstd
)

var codecNames = [...]string{"none", "gzip", "snappy", "lz4", "zstd"}

func (c Codec) String() string {
	if c.known() {
		return codecNames[c]
	}
	return fmt.Sprintf("codec-%d", int8(c))
}

func (c Codec) known() bool { return c >= None && c <= Zstd }

// ParseCodec reads a codec's name: none (or uncompressed, as topics spell it), gzip, snappy, lz4, zstd.
func ParseCodec(name string) (Codec, error) {
	if name == "uncompressed" {
		return None, nil
	}
	for i, n := range codecNames {
		if n == name {
			return Codec(i), nil
		}
	}
	return None, fmt.Errorf("compression codec %q is not known", name)
}

// Compression is a codec with its level; level 0 is the codec's default.
type Compression struct {
	Codec Codec
	Level int
}
