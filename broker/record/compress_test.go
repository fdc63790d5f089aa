package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/klauspost/compress/snappy"
	"github.com/pierrec/lz4/v4"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// likeJSON is n bytes that compress about as well as people's data does.
func likeJSON(n int) []byte {
	random := rand.New(rand.NewPCG(1, 2))
	var b []byte
	for len(b) < n {
		b = fmt.Appendf(b, `{"id":%d,"name":"customer-%d","amount":%d.%02d,"paid":%v},`,
			random.IntN(1e9), random.IntN(1e4), random.IntN(1e5), random.IntN(100), random.IntN(2) == 0)
	}
	return b[:n]
}

func TestWhatIsCompressedComesBack(t *testing.T) {
	levels := map[Codec][]int{None: {0}, Gzip: {0, -1, 1, 9}, Snappy: {0}, LZ4: {0, 1, 9, 17}, Zstd: {0, -5, 1, 3, 22}}
	for codec := None; codec <= Zstd; codec++ {
		for _, level := range levels[codec] {
			for _, n := range []int{0, 1, 100, xerialBlock, xerialBlock + 1, 300_000} {
				data := likeJSON(n)
				packed, err := compress([]byte("head"), data, Compression{codec, level})
				if err != nil {
					t.Fatalf("%v level %d: %v", codec, level, err)
				}
				if !bytes.HasPrefix(packed, []byte("head")) {
					t.Fatalf("%v level %d: not appended", codec, level)
				}
				if codec != None && n == 300_000 && len(packed) > n/2 {
					t.Errorf("%v level %d: %d bytes became %d", codec, level, n, len(packed))
				}
				back, err := decompress(codec, packed[4:], n)
				if err != nil {
					t.Fatalf("%v level %d, %d bytes: %v", codec, level, n, err)
				}
				if !bytes.Equal(*back, data) {
					t.Errorf("%v level %d, %d bytes: other bytes came back", codec, level, n)
				}
				recycle(back)
				if n > 0 {
					if _, err := decompress(codec, packed[4:], n-1); !errors.Is(err, ErrTooLarge) {
						t.Errorf("%v level %d: %v past the limit", codec, level, err)
					}
				}
			}
		}
	}
}

func TestUnknownCodecAndLevel(t *testing.T) {
	if _, err := compress(nil, nil, Compression{Codec: 5}); err == nil {
		t.Error("codec 5 was taken")
	}
	if _, err := compress(nil, nil, Compression{Codec: Gzip, Level: 77}); err == nil {
		t.Error("gzip level 77 was taken")
	}
	if _, err := ParseCodec("brotli"); err == nil {
		t.Error("brotli was taken")
	}
	for codec := None; codec <= Zstd; codec++ {
		if got, err := ParseCodec(codec.String()); got != codec || err != nil {
			t.Errorf("%v: %v %v", codec, got, err)
		}
	}
}

// bodyOf is the body of a batch of one record with n zeros.
func bodyOf(n int) []byte { return zeros(None, n).body() }

func TestOtherWritersFrames(t *testing.T) {
	body := bodyOf(100_000)
	lz4Frame := func(options ...lz4.Option) []byte {
		var out bytes.Buffer
		w := lz4.NewWriter(&out)
		if err := w.Apply(options...); err != nil {
			t.Fatal(err)
		}
		_, _ = w.Write(body)
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	linked := lz4Frame()
	linked[4] &^= lz4Independent
	for _, c := range []struct {
		name  string
		codec Codec
		body  []byte
		want  wire.Code
	}{
		{"snappy without framing (librdkafka)", Snappy, snappy.Encode(nil, body), wire.None},
		{"snappy with an empty chunk", Snappy, cat(xerialMagic, []byte{0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0}, chunk(body)), wire.None},
		{"snappy with a cut chunk", Snappy, cat(xerialMagic, []byte{0, 0, 0, 1, 0, 0, 0, 1}, chunk(body)[:9]), wire.UnknownServerError},
		{"snappy that claims a gigabyte", Snappy, []byte{0x80, 0x80, 0x80, 0x80, 0x04, 0, 0, 0}, wire.UnknownServerError},
		{"lz4 with checksum of the content", LZ4, lz4Frame(lz4.ChecksumOption(true)), wire.None},
		{"lz4 without checksum", LZ4, lz4Frame(lz4.ChecksumOption(false)), wire.None},
		{"lz4 with checksums of the blocks", LZ4, lz4Frame(lz4.BlockChecksumOption(true)), wire.None},
		{"lz4 with the size of the content", LZ4, lz4Frame(lz4.SizeOption(uint64(len(body)))), wire.None},
		{"lz4 with blocks of 4 MiB", LZ4, lz4Frame(lz4.BlockSizeOption(lz4.Block4Mb)), wire.None},
		{"lz4 with linked blocks", LZ4, linked, wire.UnknownServerError},
		{"lz4 in the legacy format", LZ4, lz4Frame(lz4.LegacyOption(true)), wire.UnknownServerError},
	} {
		_, err := Validate(withBody(c.codec, string(c.body), 1), lenient, now)
		if wire.CodeOf(err) != c.want {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

func chunk(b []byte) []byte {
	block := snappy.Encode(nil, b)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(block))), block...)
}

// zstdBomb is a frame of 4 bytes for each 128 KiB of zeros, behind the given bytes.
func zstdBomb(head []byte, blocks int) []byte {
	const block = 128 << 10
	frame := []byte{0x28, 0xb5, 0x2f, 0xfd, 0, 7 << 3} // magic; no content size or checksum; a window of 128 KiB
	header := func(last, kind, size uint32) {
		h := last | kind<<1 | size<<3
		frame = append(frame, byte(h), byte(h>>8), byte(h>>16))
	}
	header(0, 0, uint32(len(head)))
	frame = append(frame, head...)
	for range blocks {
		header(0, 1, block)
		frame = append(frame, 0)
	}
	header(1, 0, 0)
	return frame
}

// allocated is how many bytes f allocates.
func allocated(f func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

func TestBO103BombsUnfoldInFlatMemory(t *testing.T) {
	const size = 16 << 20
	b := withBody(Zstd, string(zstdBomb(recordHead(size-1), size>>17)), 1)
	var err error
	used := allocated(func() { _, err = Validate(b, lenient, now) })
	if err != nil || used > 1<<20 {
		t.Errorf("zstd in %d bytes: %v, %d bytes allocated", len(b), err, used)
	}
	for _, codec := range []Codec{Gzip, LZ4, Snappy} {
		b := zeros(codec, size)
		p := lenient
		p.MaxMessageBytes = len(b)
		used := allocated(func() { _, err = Validate(b, p, now) })
		if err != nil || used > 12<<20 {
			t.Errorf("%v in %d bytes: %v, %d bytes allocated", codec, len(b), err, used)
		}
	}
}

// recordHead is a record of n zeros up to its value; n + 1 zeros have to follow.
func recordHead(n int) []byte {
	size := binary.AppendVarint(nil, int64(n))
	b := binary.AppendVarint(nil, int64(4+len(size)+n+1))
	return append(append(b, 0, 0, 0, 1), size...)
}

func TestBO103UnfoldingEnds(t *testing.T) {
	body := bodyOf(3 * windowSize)
	for left, want := range map[int]error{len(body): io.EOF, len(body) - 1: ErrTooLarge} {
		v := validator{Policy: lenient, now: now, batch: sample(1)}
		s := stream{from: bytes.NewReader(body), window: make([]byte, windowSize), left: left}
		if refused := v.visitStream(&s); !errors.Is(s.err, want) {
			t.Errorf("%d of %d bytes allowed: %v, %v", left, len(body), s.err, refused)
		}
	}
}

func TestBO103BombIsNotRewritten(t *testing.T) {
	const size = 1 << 30
	b := withBody(Zstd, string(zstdBomb(recordHead(size-1), size>>17)), 1)
	var err error
	used := allocated(func() { _, err = Validate(b, stored(None), now) })
	if wire.CodeOf(err) != wire.MessageTooLarge || used > 6<<20 {
		t.Errorf("%v, %d bytes allocated", err, used)
	}
}

func TestBO103RecordsStopsAtTheLimit(t *testing.T) {
	b := withBody(Zstd, string(zstdBomb(recordHead(1<<30-1), 8<<10)), 1)
	used := allocated(func() {
		for _, err := range Records(b, 1<<20) {
			if !errors.Is(err, ErrTooLarge) {
				t.Error(err)
			}
		}
	})
	if used > 6<<20 {
		t.Errorf("%d bytes allocated", used)
	}
}

func TestTimesAreThoseOfTheRecords(t *testing.T) {
	for codec := None; codec <= Zstd; codec++ {
		for _, kind := range []TimestampType{CreateTime, LogAppendTime} {
			w := Builder{Compression: Compression{Codec: codec}}
			for i := range 100 {
				w.Append(now+int64(i*i%7), []byte("k"), bytes.Repeat([]byte{byte(i)}, i*i*20))
			}
			b, err := w.Build()
			if err != nil {
				t.Fatal(err)
			}
			b.SetBaseOffset(50)
			b.SetMaxTimestamp(kind, now+6)
			var want, got []Time
			for r, err := range Records(b, 1<<30) {
				if err != nil {
					t.Fatal(err)
				}
				want = append(want, Time{r.Offset, r.Timestamp})
			}
			for x, err := range Times(b, 1<<30) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, x)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%v, %v: %v, want %v", codec, kind, got, want)
			}
			for range Times(b, 1<<30) {
				break
			}
			if codec == None {
				continue
			}
			var failed error
			for _, err := range Times(b, 1000) {
				failed = err
			}
			if !errors.Is(failed, ErrTooLarge) {
				t.Errorf("%v past its limit: %v", codec, failed)
			}
		}
	}
}

// The limit is that of one record of a compressed batch, as for Validate: what it has let in can be looked up.
func TestTimesGoByTheSizeOfARecord(t *testing.T) {
	for name, c := range map[string]struct {
		b        Batch
		limit    int
		tooLarge bool
	}{
		"record at the limit":            {zeros(Gzip, 991), 1000, false},
		"record above the limit":         {zeros(Gzip, 992), 1000, true},
		"several records above it":       {build(Snappy, numbered(50)), 50, false},
		"plain record above it":          {zeros(None, 2000), 1000, false},
		"several plain records above it": {build(None, numbered(50)), 50, false},
	} {
		var failed error
		for _, err := range Times(c.b, c.limit) {
			failed = err
		}
		if errors.Is(failed, ErrTooLarge) != c.tooLarge || !c.tooLarge && failed != nil {
			t.Errorf("%s: %v", name, failed)
		}
	}
}

func TestTimesOfDamagedRecords(t *testing.T) {
	for name, b := range map[string]Batch{
		"no record":       withBody(None, "", 1),
		"a negative size": withBody(None, "\x01", 1),
		"a record cut":    withBody(None, string(bodyOf(100)[:50]), 1),
		"a byte too many": withBody(None, string(bodyOf(100))+"x", 1),
		"no gzip":         withBody(Gzip, "nothing", 1),
		"no codec":        withBody(7, "nothing", 1),
	} {
		var failed error
		for _, err := range Times(b, 1<<20) {
			failed = err
		}
		if !errors.Is(failed, ErrCorrupt) {
			t.Errorf("%s: %v", name, failed)
		}
	}
}

func TestBO103TimesUnfoldInFlatMemory(t *testing.T) {
	const size = 64 << 20
	b := withBody(Zstd, string(zstdBomb(recordHead(size-1), size>>17)), 1)
	n := 0
	used := allocated(func() {
		for _, err := range Times(b, 1<<30) {
			if err != nil {
				t.Error(err)
			}
			n++
		}
	})
	if n != 1 || used > 1<<20 {
		t.Errorf("%d records, %d bytes allocated", n, used)
	}
}

func TestZstdWindowsAreBounded(t *testing.T) {
	for _, c := range []struct {
		name string
		log  byte // of the window
		code wire.Code
	}{
		{"level 19", 23, wire.None},
		{"level 22", 27, wire.None},
		{"wider than any level", 30, wire.UnknownServerError},
	} {
		frame := zstdBomb(bodyOf(100), 0)
		frame[5] = (c.log - 10) << 3
		_, err := Validate(withBody(Zstd, string(frame), 1), lenient, now)
		if wire.CodeOf(err) != c.code {
			t.Errorf("%s: %v, want %v", c.name, err, c.code)
		}
	}
	if len(wideZstd) != 0 {
		t.Error("the slot for wide windows is not free again")
	}
}

func TestRecordsLargerThanTheWindow(t *testing.T) {
	big := bytes.Repeat([]byte("0123456789"), windowSize/4)
	headers := []Header{{"a", big}, {"b", nil}, {"", big}}
	for codec := Gzip; codec <= Zstd; codec++ {
		w := Builder{Compression: Compression{Codec: codec}}
		w.Append(createTime+5, big, big, headers...)
		w.Append(createTime+7, nil, big[:windowSize-20])
		w.Append(createTime+6, big[:windowSize], nil, headers...)
		b, err := w.Build()
		if err != nil {
			t.Fatal(err)
		}
		want := describe(b)
		b.SetMaxTimestamp(CreateTime, 0)
		if result, err := Validate(b, lenient, now); err != nil || describe(result.Batch) != want {
			t.Errorf("%v: %v, maximum %d", codec, err, result.Batch.MaxTimestamp())
		}
		_, err = Validate(b, compacted, now)
		var refused *Error
		if !errors.As(err, &refused) || len(refused.Records) != 1 || refused.Records[0].Index != 1 {
			t.Errorf("%v: %v; only record 1 has no key", codec, err)
		}
	}
}

func TestDamagedRecordsLargerThanTheWindow(t *testing.T) {
	big := make([]byte, 2*windowSize)
	record := func(change func(b []byte) []byte) []byte {
		w := Builder{}
		w.Append(createTime, big, big, Header{"name", big})
		return change(slices.Clone(w.body))
	}
	for _, c := range []struct {
		name   string
		change func(b []byte) []byte
	}{
		{"too short for its length", func(b []byte) []byte { return b[:len(b)-1] }},
		{"a byte more", func(b []byte) []byte { return append(b, 0) }},
		{"length says less", func(b []byte) []byte { b[0] -= 2; return b }},
		{"length says more", func(b []byte) []byte { b[0] += 2; return append(b, 0) }},
		{"key longer than all", func(b []byte) []byte { copy(b[7:], "\xfe\xff\xff\xff\x0f"); return b }},
	} {
		body, err := compress(nil, record(c.change), Compression{Codec: Zstd})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Validate(withBody(Zstd, string(body), 1), lenient, now); wire.CodeOf(err) != wire.InvalidRecord {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	body, _ := compress(nil, record(func(b []byte) []byte { return b }), Compression{Codec: Zstd})
	if _, err := Validate(withBody(Zstd, string(body), 1), lenient, now); err != nil {
		t.Errorf("undamaged: %v", err)
	}
}

func TestPlainRecordsAndValidationAllocateNothingARecord(t *testing.T) {
	b := build(None, numbered(1000))
	perBatch := testing.AllocsPerRun(10, func() {
		for r, err := range Records(b, math.MaxInt32) {
			if err != nil || r.Key == nil {
				t.Fatal(err)
			}
		}
	})
	if perBatch > 1 {
		t.Errorf("Records allocates %v times a batch", perBatch)
	}
	perBatch = testing.AllocsPerRun(10, func() {
		if _, err := Validate(b, lenient, now); err != nil {
			t.Fatal(err)
		}
	})
	if perBatch > 0 {
		t.Errorf("Validate allocates %v times a batch", perBatch)
	}
}

func TestBuilderRefusesAnEmptyBatchAndStartsAnew(t *testing.T) {
	w := Builder{}
	if _, err := w.Build(); err == nil {
		t.Error("an empty batch was built")
	}
	w.Append(5, []byte("a"), nil)
	w.Reset()
	w.Append(7, []byte("b"), nil)
	b, err := w.Build()
	if err != nil || w.Count() != 1 || b.Count() != 1 || b.BaseTimestamp() != 7 || b.MaxTimestamp() != 7 {
		t.Errorf("%v: %s", err, describe(b))
	}
}
