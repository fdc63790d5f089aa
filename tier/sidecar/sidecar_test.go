package sidecar

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/wire"
)

func offsets(entries ...uint32) (b []byte) {
	for _, v := range entries {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	return b
}

func times(entries ...[2]int64) (b []byte) {
	for _, e := range entries {
		b = binary.BigEndian.AppendUint64(b, uint64(e[0]))
		b = binary.BigEndian.AppendUint32(b, uint32(e[1]))
	}
	return b
}

// aborted makes a transaction index: producer, first offset, last offset, last stable offset.
func aborted(entries ...[4]int64) (b []byte) {
	for _, e := range entries {
		b = binary.BigEndian.AppendUint16(b, 0)
		for _, v := range e {
			b = binary.BigEndian.AppendUint64(b, uint64(v))
		}
	}
	return b
}

// producers makes a producer snapshot without producers.
func producers() []byte {
	b := []byte{0, 1, 0, 0, 0, 0, 0, 0, 0, 0}
	binary.BigEndian.PutUint32(b[2:], crc32.Checksum(b[6:], castagnoli))
	return b
}

func sample() Contents {
	return Contents{
		Segment: Segment{
			TopicID: wire.TopicID{15: 1}, Partition: 3, Base: 1000, Start: 1010, End: 2000, LeaderEpoch: 4, Size: 50_000, CRC: 0xdeadbeef,
			MinTimestamp: 100, MaxTimestamp: 900, UploadedMs: 1_800_000_000_000,
		},
		OffsetIndex:      offsets(99, 0, 399, 4096, 699, 9000),
		TimeIndex:        times([2]int64{300, 99}, [2]int64{500, 399}, [2]int64{900, 699}),
		TransactionIndex: aborted([4]int64{7, 1020, 1100, 1020}, [4]int64{9, 1050, 1400, 1050}, [4]int64{7, 1500, 1600, 1500}),
		ProducerSnapshot: producers(),
		Epochs:           []log.EpochEntry{{Epoch: 0, Start: 0}, {Epoch: 2, Start: 1200}, {Epoch: 4, Start: 1500}},
	}
}

func mustDecode(t testing.TB, c Contents) *Sidecar {
	t.Helper()
	b, err := Encode(c)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestBytes pins the format: buckets live longer than programs.
func TestBytes(t *testing.T) {
	got, err := Encode(sample())
	if err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/sample.aux.hex"
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if text := dump(got); text != string(want) {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
	const directory = `{"version":1,"segment":{"topic_id":"AAAAAAAAAAAAAAAAAAAAAQ","partition":3,"base":1000,"start":1010,"end":2000,"leader_epoch":4,` +
		`"size":50000,"min_timestamp":100,"max_timestamp":900,"uploaded_ms":1800000000000,"crc32c":"deadbeef"},"sections":[` +
		`{"name":"offset_index","offset":0,"length":24,`
	if !strings.HasPrefix(string(got[16:]), directory) {
		t.Errorf("the directory is %s", got[16:600])
	}
}

// dump is hex in lines of 32 bytes.
func dump(b []byte) string {
	var lines []string
	for part := range slices.Chunk(b, 32) {
		lines = append(lines, hex.EncodeToString(part))
	}
	return strings.Join(lines, "\n") + "\n"
}

func TestContentsComeBack(t *testing.T) {
	c := sample()
	s := mustDecode(t, c)
	if s.Segment() != c.Segment || !slices.Equal(s.Epochs(), c.Epochs) {
		t.Errorf("segment %+v, epochs %v", s.Segment(), s.Epochs())
	}
	if data, ok := s.ProducerSnapshot(); !ok || !bytes.Equal(data, c.ProducerSnapshot) {
		t.Errorf("producers %x", data)
	}
	if b, _ := Encode(c); s.Size() < len(b) {
		t.Errorf("%d bytes of %d", s.Size(), len(b))
	}
}

func TestPosition(t *testing.T) {
	s := mustDecode(t, sample())
	for offset, want := range map[wire.Offset]int64{0: 0, 1000: 0, 1098: 0, 1099: 0, 1398: 0, 1399: 4096, 1698: 4096, 1699: 9000, 1999: 9000, 5000: 9000} {
		if got := s.Position(offset); got != want {
			t.Errorf("offset %d at %d, want %d", offset, got, want)
		}
	}
	for ts, want := range map[int64]int64{-1: 0, 0: 0, 299: 0, 300: 0, 499: 0, 500: 4096, 899: 4096, 900: 9000, 9999: 9000} {
		if got := s.PositionForTime(ts); got != want {
			t.Errorf("time %d at %d, want %d", ts, got, want)
		}
	}
	c := sample()
	c.OffsetIndex, c.TimeIndex = nil, nil // a segment of one batch
	if s := mustDecode(t, c); s.Position(1500) != 0 || s.PositionForTime(500) != 0 {
		t.Error("without an index a look-up does not begin at the front")
	}
}

// TestBO085NoTransactionsIsNoError: an empty transaction index is the rule, and says that nothing was aborted.
func TestBO085NoTransactionsIsNoError(t *testing.T) {
	c := sample()
	c.TransactionIndex = nil
	if list, complete := mustDecode(t, c).Aborted(0, 9999); len(list) != 0 || complete {
		t.Errorf("aborted %v, complete %v", list, complete)
	}
}

func TestAborted(t *testing.T) {
	s := mustDecode(t, sample())
	tests := []struct {
		from, to wire.Offset
		firsts   []wire.Offset
		complete bool
	}{
		{1000, 2000, []wire.Offset{1020, 1050, 1500}, false},
		{1000, 1020, nil, true},
		{1000, 1021, []wire.Offset{1020}, true},
		{1100, 1101, []wire.Offset{1020, 1050}, true},
		{1101, 1500, []wire.Offset{1050}, true},
		{1101, 1501, []wire.Offset{1050, 1500}, false},
		{1601, 2000, nil, false},
	}
	for _, test := range tests {
		list, complete := s.Aborted(test.from, test.to)
		var firsts []wire.Offset
		for _, a := range list {
			firsts = append(firsts, a.First)
		}
		if !slices.Equal(firsts, test.firsts) || complete != test.complete {
			t.Errorf("[%d, %d): %v, complete %v; want %v, %v", test.from, test.to, firsts, complete, test.firsts, test.complete)
		}
	}
}

// TestSafety18AClippedSidecarSaysNothingOfTheOtherHistory: epochs and transactions behind the cut are gone, and so are the producers.
func TestSafety18AClippedSidecarSaysNothingOfTheOtherHistory(t *testing.T) {
	whole := mustDecode(t, sample())
	if whole.Clip(2000) != whole || whole.Clip(3000) != whole {
		t.Error("a cut at the end or behind it clips")
	}
	s := whole.Clip(1500)
	if data, ok := s.ProducerSnapshot(); ok || data != nil {
		t.Error("producers as of an end that was cut off")
	}
	if got := s.Epochs(); len(got) != 2 || got[1].Epoch != 2 {
		t.Errorf("epochs %v", got)
	}
	if list, _ := s.Aborted(0, 9999); len(list) != 2 || s.Segment().End != 1500 {
		t.Errorf("aborted %v, end %d", list, s.Segment().End)
	}
	if list, _ := whole.Aborted(0, 9999); len(list) != 3 || len(whole.Epochs()) != 3 {
		t.Error("the whole one has changed")
	}
	if list, _ := whole.Clip(1600).Aborted(0, 9999); len(list) != 2 { // its marker is cut off: nobody knows how it ended
		t.Errorf("aborted %v", list)
	}
}

// TestBO095DamagedIndexesAreNotEncoded: what a look-up would be led astray by is not uploaded.
func TestBO095DamagedIndexesAreNotEncoded(t *testing.T) {
	for name, spoil := range map[string]func(*Contents){
		"half an entry":                      func(c *Contents) { c.OffsetIndex = c.OffsetIndex[:20] },
		"reserved room behind the entries":   func(c *Contents) { c.OffsetIndex = append(c.OffsetIndex, make([]byte, 8)...) },
		"offsets that don't rise":            func(c *Contents) { c.OffsetIndex = offsets(99, 0, 99, 4096) },
		"positions that don't rise":          func(c *Contents) { c.OffsetIndex = offsets(99, 100, 100, 100) },
		"an offset behind the end":           func(c *Contents) { c.OffsetIndex = offsets(1000, 0) },
		"a position behind the end":          func(c *Contents) { c.OffsetIndex = offsets(99, 50_000) },
		"half a time":                        func(c *Contents) { c.TimeIndex = c.TimeIndex[:11] },
		"times that don't rise":              func(c *Contents) { c.TimeIndex = times([2]int64{300, 1}, [2]int64{300, 2}) },
		"times whose offsets go back":        func(c *Contents) { c.TimeIndex = times([2]int64{300, 2}, [2]int64{400, 1}) },
		"a time of an offset behind the end": func(c *Contents) { c.TimeIndex = times([2]int64{300, 1000}) },
		"half a transaction":                 func(c *Contents) { c.TransactionIndex = c.TransactionIndex[:33] },
		"no producers":                       func(c *Contents) { c.ProducerSnapshot = nil },
		"producers with a flipped bit":       func(c *Contents) { c.ProducerSnapshot[9] ^= 1 },
		"epochs that go down":                func(c *Contents) { c.Epochs[2].Epoch = 1 },
		"no offsets":                         func(c *Contents) { c.Segment.End = c.Segment.Start },
		"a start below the base":             func(c *Contents) { c.Segment.Start = 999 },
		"no bytes":                           func(c *Contents) { c.Segment.Size = 0 },
	} {
		c := sample()
		spoil(&c)
		if b, err := Encode(c); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
	}
}

func TestEveryBitIsCovered(t *testing.T) {
	b, err := Encode(sample())
	if err != nil {
		t.Fatal(err)
	}
	for i := range b {
		for bit := range 8 {
			damaged := bytes.Clone(b)
			damaged[i] ^= 1 << bit
			if _, err := Decode(damaged); !errors.Is(err, ErrDamaged) {
				t.Fatalf("bit %d of byte %d: %v", bit, i, err)
			}
		}
	}
	for n := range b {
		if _, err := Decode(b[:n]); !errors.Is(err, ErrDamaged) {
			t.Fatalf("cut after %d bytes: %v", n, err)
		}
	}
}

// object makes one of a directory and what lies behind it, as a hostile hand would.
func object(directory, body string) []byte {
	b := append([]byte(Magic), binary.BigEndian.AppendUint32(nil, uint32(len(directory)))...)
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum([]byte(directory), castagnoli))
	return append(append(b, directory...), body...)
}

func TestHostileDirectories(t *testing.T) {
	huge := append([]byte(Magic), 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0)
	part := `{"name":"x","offset":0,"length":1,"crc32c":"00000000"},`
	for name, b := range map[string][]byte{
		"a directory of 4 GB":    huge,
		"no JSON":                object(`{"version":1`, ""),
		"too many sections":      object(`{"version":1,"sections":[`+strings.Repeat(part, 100)+part[:len(part)-1]+`]}`, "x"),
		"a section behind":       object(`{"version":1,"sections":[{"name":"offset_index","offset":9223372036854775807,"length":9223372036854775807,"crc32c":"00000000"}]}`, "x"),
		"a section of minus one": object(`{"version":1,"sections":[{"name":"offset_index","offset":0,"length":-1,"crc32c":"00000000"}]}`, "x"),
		"one section twice":      object(`{"version":1,"sections":[{"name":"a","offset":0,"length":0,"crc32c":"00000000"},{"name":"a","offset":0,"length":0,"crc32c":"00000000"}]}`, "x"),
		"no sections":            object(`{"version":1,"sections":[]}`, ""),
	} {
		if s, err := Decode(b); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
	if _, err := Decode(object(`{"version":2}`, "")); err == nil || errors.Is(err, ErrDamaged) {
		t.Errorf("a newer version: %v", err)
	}
}

// TestUnknownSectionsArePassedOver: a later version may add some.
func TestUnknownSectionsArePassedOver(t *testing.T) {
	b, err := Encode(sample())
	if err != nil {
		t.Fatal(err)
	}
	n := binary.BigEndian.Uint32(b[8:])
	directory, body := string(b[16:16+n]), string(b[16+n:])
	directory = strings.Replace(directory, `"sections":[`, `"sections":[{"name":"new","offset":0,"length":0,"crc32c":"00000000"},`, 1)
	if s, err := Decode(object(directory, body)); err != nil || s.Position(1399) != 4096 {
		t.Errorf("%v", err)
	}
}

// TestLookUpsAgreeWithTheLogsIndexes: positions by brute force over what broker/log reads of the same bytes.
func TestLookUpsAgreeWithTheLogsIndexes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		c := sample()
		c.OffsetIndex, c.TimeIndex = nil, nil
		offset, position, ts := uint32(rng.IntN(5)), uint32(rng.IntN(2)), int64(0)
		for range rng.IntN(20) {
			c.OffsetIndex = append(c.OffsetIndex, offsets(offset, position)...)
			ts += 1 + rng.Int64N(3)
			c.TimeIndex = append(c.TimeIndex, times([2]int64{ts, int64(offset)})...)
			offset, position = offset+1+uint32(rng.IntN(40)), position+1+uint32(rng.IntN(1000))
		}
		s := mustDecode(t, c)
		byOffset, err := log.DecodeOffsetIndex(c.OffsetIndex, c.Segment.Base)
		byTime, err2 := log.DecodeTimeIndex(c.TimeIndex, c.Segment.Base)
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		floor := func(o wire.Offset) (position int64) {
			for _, e := range byOffset {
				if e.Offset <= o {
					position = e.Position
				}
			}
			return position
		}
		for o := c.Segment.Base - 2; o < c.Segment.End; o += 3 {
			if got := s.Position(o); got != floor(o) {
				t.Fatalf("offset %d at %d, want %d", o, got, floor(o))
			}
		}
		for at := int64(-1); at < ts+3; at++ {
			var want int64
			for _, e := range byTime {
				if e.Timestamp <= at {
					want = floor(e.Offset)
				}
			}
			if got := s.PositionForTime(at); got != want {
				t.Fatalf("time %d at %d, want %d", at, got, want)
			}
		}
	}
}

// FuzzDecode: any bytes are a sidecar or refused; what was read can be looked up and written again.
func FuzzDecode(f *testing.F) {
	b, err := Encode(sample())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b, int64(1399), int64(500))
	f.Add(object(`{"version":1,"sections":[]}`, ""), int64(0), int64(0))
	f.Fuzz(func(t *testing.T, data []byte, offset, ts int64) {
		s, err := Decode(repaired(data))
		if err != nil {
			return
		}
		for _, p := range []int64{s.Position(wire.Offset(offset)), s.PositionForTime(ts)} {
			if p < 0 || p >= s.Segment().Size {
				t.Fatalf("position %d of %d", p, s.Segment().Size)
			}
		}
		s.Aborted(wire.Offset(offset), wire.Offset(ts))
		s.Clip(wire.Offset(offset))
		producers, _ := s.ProducerSnapshot()
		again := mustDecode(t, Contents{
			Segment: s.segment, OffsetIndex: s.offsets, TimeIndex: s.times, ProducerSnapshot: producers, Epochs: s.epochs,
		})
		if again.Segment() != s.Segment() || !reflect.DeepEqual(again.Epochs(), s.Epochs()) {
			t.Fatalf("%+v becomes %+v", s, again)
		}
	})
}

// repaired gives the directory the checksum that it should have, so that fuzzing gets past it.
func repaired(data []byte) []byte {
	if len(data) < headerSize {
		return data
	}
	b := bytes.Clone(data)
	if n := binary.BigEndian.Uint32(b[8:]); int64(n) <= int64(len(b)-headerSize) {
		binary.BigEndian.PutUint32(b[12:], crc32.Checksum(b[headerSize:headerSize+int(n)], castagnoli))
	}
	return b
}

func BenchmarkPosition(b *testing.B) {
	c := sample()
	c.Segment.Size, c.Segment.End = 1<<30, 2_000_000
	c.OffsetIndex = nil
	for i := range uint32(4096) {
		c.OffsetIndex = append(c.OffsetIndex, offsets(i*200+1, i*4096)...)
	}
	s := mustDecode(b, c)
	b.ReportAllocs()
	for b.Loop() {
		s.Position(500_000)
	}
}
