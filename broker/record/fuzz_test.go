package record

import (
	"bytes"
	"errors"
	"testing"
)

// seeds gives the fuzzers what Kafka wrote and what the tables know to be odd.
func seeds(f *testing.F) {
	for _, b := range split(f, readSegment(f)) {
		b.SetBaseOffset(0)
		f.Add([]byte(b))
	}
	for _, c := range refusals {
		if len(c.batch) < 1<<10 {
			f.Add(c.batch)
		}
	}
}

// FuzzBatch walks arbitrary bytes as a log would: whatever it is, it is read within its bounds or refused.
func FuzzBatch(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		for len(data) > 0 {
			b, rest, err := Next(data)
			if err != nil {
				if !errors.Is(err, ErrShort) && !errors.Is(err, ErrCorrupt) {
					t.Fatal(err)
				}
				return
			}
			_ = b.Check()
			_ = describe(b)
			_, _, _ = ReadEndTxnMarker(b)
			data = rest
		}
	})
}

// FuzzValidate holds Validate to its contract: what it accepts is whole, has a right checksum and can be read to its end; a
// second look accepts it again without a change.
func FuzzValidate(f *testing.F) {
	seeds(f)
	policies := []Policy{lenient, compacted, bounded, appendTime, coordinator, stored(None), stored(Gzip), stored(LZ4)}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, p := range policies {
			p.MaxDecompressed = 1 << 20
			in := bytes.Clone(data)
			if b, _, err := Next(in); err == nil {
				b.SetCRC() // else the fuzzer gets no further than the checksum
			}
			result, err := Validate(in, p, now)
			if err != nil {
				if _, ok := errors.AsType[*Error](err); !ok {
					t.Fatalf("%v is no *Error", err)
				}
				continue
			}
			b := result.Batch
			if err := b.Check(); err != nil {
				t.Fatal(err)
			}
			if b.Length() != len(b) {
				t.Fatalf("length %d of %d bytes", b.Length(), len(b))
			}
			var count int32
			for _, err := range Records(b, maxRewritten) {
				if err != nil {
					t.Fatalf("an accepted batch: %v", err)
				}
				count++
			}
			if count != b.Count() {
				t.Fatalf("%d records, the header says %d", count, b.Count())
			}
			if p.AppendTime || Batch(data).TimestampType() == LogAppendTime {
				continue // what is stamped is refused from a producer, and a producer's stamp hides its timestamps
			}
			before := string(b)
			if again, err := Validate(b, p, now); err != nil || p.Target == nil && string(again.Batch) != before {
				t.Fatalf("a second look: %v", err)
			}
		}
	})
}

// FuzzControlRecord reads arbitrary keys and values.
func FuzzControlRecord(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1}, []byte{0, 0, 0, 0, 0, 9})
	f.Fuzz(func(t *testing.T, key, value []byte) {
		marker, err := ParseEndTxnMarker(key, value)
		if err != nil {
			return
		}
		b := NewEndTxnMarker(1, 2, 3, marker)
		if back, ok, err := ReadEndTxnMarker(b); !ok || err != nil || back != marker {
			t.Fatalf("%+v came back as %+v, %v, %v", marker, back, ok, err)
		}
	})
}

// FuzzVarint compares the short way with the long one.
func FuzzVarint(f *testing.F) {
	f.Add([]byte{0x80, 0x01})
	f.Fuzz(func(t *testing.T, data []byte) {
		v, n := readVarint(data)
		long, m := readLongVarint(data)
		if v != long || n != m || n > len(data) {
			t.Fatalf("%d in %d bytes, %d in %d", v, n, long, m)
		}
	})
}
