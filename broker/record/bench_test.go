package record

import (
	"fmt"
	"testing"
)

// batchOf is a batch of about size bytes before compression, of values of valueSize bytes.
func batchOf(codec Codec, size, valueSize int) Batch {
	data := likeJSON(size)
	w := Builder{Compression: Compression{Codec: codec}, LeaderEpoch: -1}
	for i := 0; len(data) >= valueSize && w.Size() < size; i++ {
		w.Append(createTime+int64(i/10), nil, data[:valueSize])
		data = data[valueSize:]
	}
	b, err := w.Build()
	if err != nil {
		panic(err)
	}
	return b
}

func BenchmarkValidate(b *testing.B) {
	for codec := None; codec <= Zstd; codec++ {
		for _, c := range []struct{ size, value int }{{16 << 10, 1 << 10}, {128 << 10, 1 << 10}, {128 << 10, 100}} {
			batch := batchOf(codec, c.size, c.value)
			b.Run(fmt.Sprintf("%v/batch=%dKiB/value=%d", codec, c.size>>10, c.value), func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(len(batch)))
				for b.Loop() {
					if _, err := Validate(batch, lenient, now); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(batch.Count()), "ns/record")
			})
		}
	}
}

func BenchmarkValidateHeaderOnly(b *testing.B) {
	batch := batchOf(Zstd, 128<<10, 1<<10)
	p := lenient
	p.HeaderOnly = true
	b.ReportAllocs()
	b.SetBytes(int64(len(batch)))
	for b.Loop() {
		if _, err := Validate(batch, p, now); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkVisit is the part of validation that grows with the number of records: no checksum.
func BenchmarkVisit(b *testing.B) {
	batch := batchOf(None, 128<<10, 100)
	for b.Loop() {
		v := validator{Policy: lenient, now: now, batch: batch}
		v.expect()
		if refused := v.visitPlain(batch.body(), len(batch)); refused != nil {
			b.Fatal(refused)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(batch.Count()), "ns/record")
}

func BenchmarkRecords(b *testing.B) {
	for codec := None; codec <= Zstd; codec++ {
		batch := batchOf(codec, 128<<10, 100)
		b.Run(codec.String(), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(batch)))
			for b.Loop() {
				for r, err := range Records(batch, 1<<20) {
					if err != nil || len(r.Value) != 100 {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

func BenchmarkBuild(b *testing.B) {
	value := likeJSON(100)
	for codec := None; codec <= Zstd; codec++ {
		b.Run(codec.String(), func(b *testing.B) {
			w := Builder{Compression: Compression{Codec: codec}}
			b.ReportAllocs()
			for b.Loop() {
				w.Reset()
				for i := range 1000 {
					w.Append(createTime+int64(i), nil, value)
				}
				if _, err := w.Build(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
