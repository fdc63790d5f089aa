package log

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// sized is a batch of about so many bytes, of records of 1 KiB.
func sized(bytes int, edit ...func(*record.Builder)) record.Batch {
	return batch(max(1, bytes/1100), testTime.UnixMilli(), 1024, edit...)
}

func benchLog(b *testing.B, segmentBytes int, edit ...func(*Options)) *Log {
	cfg := testConfig()
	cfg.SegmentBytes, cfg.SegmentIndexBytes = segmentBytes, 10<<20
	o := options(vfs.OS{}, cfg)
	o.Dir = filepath.Join(b.TempDir(), "orders-0")
	for _, f := range edit {
		f(&o)
	}
	return mustOpen(b, o)
}

func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{4 << 10, 16 << 10, 128 << 10} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			l := benchLog(b, 64<<20)
			bytes := sized(size)
			b.SetBytes(int64(len(bytes)))
			b.ReportAllocs()
			keep := l.Config()
			keep.RetentionBytes, keep.FileDeleteDelayMs = 128<<20, 0
			l.UpdateConfig(keep)
			segments := 1
			for b.Loop() {
				if _, err := l.AppendAsLeader(testTime, bytes, 1, Client); err != nil {
					b.Fatal(err)
				}
				if n := len(*l.segments.Load()); n > segments+3 {
					b.StopTimer() // keep the disk from filling up
					l.UpdateHighWatermark(l.EndOffset())
					if _, err := l.Retain(testTime); err != nil {
						b.Fatal(err)
					}
					for _, p := range l.env.trash.take(testTime.Add(time.Hour)) {
						if err := l.env.fs.RemoveAll(p); err != nil {
							b.Fatal(err)
						}
					}
					segments = len(*l.segments.Load())
					b.StartTimer()
				}
			}
		})
	}
}

func BenchmarkAppendIdempotent(b *testing.B) {
	l := benchLog(b, 1<<30)
	var sequence int32
	bytes := sized(4<<10, from(7, 0, 0))
	b.SetBytes(int64(len(bytes)))
	b.ReportAllocs()
	for b.Loop() {
		// The sequence lies under the checksum, which an append does not look at.
		bytes[53], bytes[54], bytes[55], bytes[56] = byte(sequence>>24), byte(sequence>>16), byte(sequence>>8), byte(sequence)
		sequence += bytes.Count()
		if _, err := l.AppendAsLeader(testTime, bytes, 1, Client); err != nil {
			b.Fatal(err)
		}
		if l.EndOffset() > 200_000 {
			b.StopTimer()
			if err := l.TruncateFullyAndStartAt(testTime, 0); err != nil {
				b.Fatal(err)
			}
			sequence = 0
			b.StartTimer()
		}
	}
}

// filled is a log of 64 MiB in one segment.
func filled(b *testing.B, batchSize int) *Log {
	l := benchLog(b, 1<<30)
	bytes := sized(batchSize)
	for l.Size() < 64<<20 {
		appendBatch(b, l, bytes)
	}
	return l
}

func BenchmarkRead(b *testing.B) {
	for _, at := range []string{"end", "everywhere", "upTo"} {
		b.Run(at, func(b *testing.B) {
			l := filled(b, 16<<10)
			end := l.EndOffset()
			step, from, upTo := wire.Offset(7919), end-100, end
			b.ReportAllocs()
			for b.Loop() {
				switch at {
				case "everywhere":
					from = (from + step) % end
				case "upTo":
					upTo = end - 20
				}
				r, err := l.Read(ReadRequest{From: from, UpTo: upTo, MaxBytes: 1 << 20})
				if err != nil || r.Range.Length == 0 {
					b.Fatal(err, from)
				}
				r.Range.Release()
			}
		})
	}
}

func BenchmarkIndexLookup(b *testing.B) {
	l := filled(b, 4<<10)
	if err := l.Roll(testTime); err != nil {
		b.Fatal(err)
	}
	if err := l.FlushDue(testTime); err != nil {
		b.Fatal(err)
	}
	s := (*l.segments.Load())[0]
	s.offsets.tail.Store(nil)
	h, err := s.open()
	if err != nil {
		b.Fatal(err)
	}
	end, at := l.EndOffset(), wire.Offset(0)
	b.ReportAllocs()
	for b.Loop() {
		at = (at + 7919) % end
		if _, _, err := s.floor(h, at); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkStart opens a broker's 1,000 partitions: S2 (clean) and S3 (after kill -9) ask for 0.15 and 0.44 ms each.
func BenchmarkStart(b *testing.B) {
	const partitions = 1000
	for _, c := range []struct {
		name         string
		clean, empty bool
	}{{"clean", true, false}, {"clean empty", true, true}, {"crash", false, false}, {"crash empty", false, true}} {
		b.Run(c.name, func(b *testing.B) {
			o := managerOptions(vfs.OS{}, b.TempDir())
			m := mustManage(b, o)
			for i := range partitions {
				l := create(b, m, partition(i))
				if !c.empty {
					appendBatch(b, l, sized(16<<10))
				}
			}
			for b.Loop() {
				b.StopTimer()
				if c.clean {
					if err := m.Close(testTime, 1); err != nil {
						b.Fatal(err)
					}
				} else {
					for _, d := range m.dirs {
						d.unlock()
					}
				}
				b.StartTimer()
				m = mustManage(b, o)
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/partitions, "us/partition")
		})
	}
}

// BenchmarkRecover scans a log of 64 MiB that was not flushed.
func BenchmarkRecover(b *testing.B) {
	l := filled(b, 16<<10)
	o := options(vfs.OS{}, l.Config())
	o.Dir, o.Stop = l.Dir(), StopProcessCrash
	b.SetBytes(l.Size())
	for b.Loop() {
		if again := mustOpen(b, o); again.EndOffset() != l.EndOffset() {
			b.Fatal(again.EndOffset())
		}
	}
}

// BenchmarkOpenUpload verifies a sealed segment of 64 MiB and makes its indexes.
func BenchmarkOpenUpload(b *testing.B) {
	l := filled(b, 16<<10)
	if err := l.Roll(testTime); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(l.Size())
	b.ReportAllocs()
	for b.Loop() {
		u, err := l.OpenUpload(0)
		if err != nil {
			b.Fatal(err)
		}
		u.Release()
	}
}
