package cold

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/cache"
	"github.com/tidemark-io/tidemark/tier/manifest"
	"github.com/tidemark-io/tidemark/tier/object"
)

// three is a twin with three segments of five batches of two records, offsets 0 to 29.
func three(t testing.TB) *twin {
	w := newTwin(t, 1)
	for range 3 {
		for range 5 {
			w.data(0, record.None, 100, 100)
		}
		w.roll()
	}
	w.finish()
	w.upload()
	w.bucket.gets = nil
	return w
}

// logged collects what people are told.
func logged(o *Options) *bytes.Buffer {
	var b bytes.Buffer
	o.Logger = slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelWarn}))
	return &b
}

// all asks for everything from an offset on.
func (w *twin) all(offset wire.Offset) Request {
	return Request{MaxBytes: 1 << 20, MinOneBatch: true, Partitions: []Fetch{w.fetch(offset, 30, 1<<20)}}
}

// elsewhere has another handle commit, as another broker or a tool would.
func (w *twin) elsewhere(do func()) {
	mine, p := w.m, w.p
	w.open(3)
	w.epoch++
	do()
	w.m, w.p = mine, p
}

func (w *twin) remove(s manifest.Segment) {
	w.t.Helper()
	for _, kind := range []manifest.Kind{manifest.LogObject, manifest.AuxObject} {
		if err := w.bucket.Delete(w.t.Context(), w.key(s, kind)); err != nil {
			w.t.Fatal(err)
		}
	}
}

// BO-093: a segment was replaced while it is read: the manifest is read again.
func TestSafety27ASegmentThatWasReplacedIsReadFromItsNewObject(t *testing.T) {
	w := three(t)
	r := w.reader()
	w.readOne(r, w.all(0))
	last := w.segments()[2]
	w.elsewhere(func() {
		c, err := w.m.MakeCut(t.Context(), testTime, last.Start)
		if err != nil {
			t.Fatal(err)
		}
		w.commit(c)
		w.put(w.log, last.Base, last.Start)
	})
	w.remove(last)
	result, got := w.readOne(r, w.all(22))
	if want := w.local(22, 30, 1<<20, true); result.Code != wire.None || !bytes.Equal(got, want) {
		t.Errorf("code %d, %d bytes, want %d", result.Code, len(got), len(want))
	}
}

// An object that the manifest names and that is not there is a storage error and an alarm.
func TestSafety27AMissingObjectIsAStorageErrorAndAnAlarm(t *testing.T) {
	w := three(t)
	var alarm *bytes.Buffer
	now := testTime
	r := w.reader(func(o *Options) { alarm = logged(o); o.Now = func() time.Time { return now } })
	w.remove(w.segments()[1])
	gets := 0
	for i := range 20 {
		if result, _ := w.readOne(r, w.all(12)); result.Code != wire.KafkaStorageError {
			t.Errorf("code %d", result.Code)
		}
		switch n := w.bucket.count(); i {
		case 0:
			gets = n
		case 10:
			if n != gets {
				t.Errorf("%d gets by clients that ask again at once, want %d", n, gets)
			}
			now = now.Add(badFor)
		case 19:
			if n != 2*gets {
				t.Errorf("%d gets some time later, want %d", n, 2*gets)
			}
		}
	}
	if n := strings.Count(alarm.String(), "level=ERROR"); n != 1 {
		t.Errorf("%d alarms, want one a minute: %s", n, alarm)
	}
	if result, b := w.readOne(r, w.all(22)); result.Code != wire.None || len(b) == 0 {
		t.Errorf("the next segment: code %d, %d bytes", result.Code, len(b))
	}
	_, err := r.OffsetForTime(t.Context(), w.p, 0, 12, 30)
	if !errors.Is(err, wire.KafkaStorageError) {
		t.Errorf("by time: %v", err)
	}
}

// BO-087, FM-42: retention moves the log start before it deletes; a reader that has not heard of it is out of range.
func TestAReaderThatRetentionOvertookIsOutOfRange(t *testing.T) {
	w := three(t)
	r := w.reader()
	first := w.segments()[0]
	w.elsewhere(func() {
		w.commit(&manifest.StartRecord{LogStart: 10})
		d, err := w.m.MakeDrop(t.Context(), testTime, 1)
		if err != nil {
			t.Fatal(err)
		}
		w.commit(d)
	})
	if result, b := w.readOne(r, w.all(0)); result.Code != wire.None || len(b) == 0 {
		t.Errorf("within the grace: code %d, %d bytes", result.Code, len(b))
	}
	w.remove(first)
	if result, _ := w.readOne(w.reader(), w.all(0)); result.Code != wire.OffsetOutOfRange {
		t.Errorf("code %d", result.Code)
	}
}

// flip changes a byte of each body that holds a position of the object of a segment.
func (w *twin) flip(s manifest.Segment, kind manifest.Kind, position int64, times int) {
	key := w.key(s, kind)
	w.bucket.body = func(k string, r object.Range, body io.ReadCloser) io.ReadCloser {
		data, err := io.ReadAll(body)
		if err != nil {
			w.t.Error(err)
		}
		if at := position - r.Offset; k == key && at >= 0 && at < int64(len(data)) && times > 0 {
			times--
			data[at] ^= 1
		}
		return io.NopCloser(bytes.NewReader(data))
	}
}

// FM-49: bit rot on the way is got over; in the bucket it is a storage error, for that range alone.
func TestDamagedBytesAreGotOnceMoreAndNeverServed(t *testing.T) {
	for _, tt := range []struct {
		name     string
		kind     manifest.Kind
		position int64
		offset   wire.Offset
		times    int
		code     wire.Code
	}{
		{"a record, once", manifest.LogObject, 150, 10, 1, wire.None},
		{"a record, for good", manifest.LogObject, 150, 10, 1000, wire.KafkaStorageError},
		{"the length of a batch", manifest.LogObject, 9, 10, 1000, wire.KafkaStorageError},
		{"the length of a batch, once", manifest.LogObject, 9, 10, 1, wire.None},
		{"the offset of a batch", manifest.LogObject, 0, 10, 1000, wire.KafkaStorageError},
		{"the index, once", manifest.AuxObject, 300, 15, 1, wire.None},
		{"the index, for good", manifest.AuxObject, 300, 15, 1000, wire.KafkaStorageError},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := three(t)
			r := w.reader()
			w.flip(w.segments()[1], tt.kind, tt.position, tt.times)
			result, got := w.readOne(r, w.all(tt.offset))
			if want := w.local(tt.offset, 30, 1<<20, true); result.Code != tt.code || tt.code == wire.None && !bytes.Equal(got, want) {
				t.Errorf("code %d, %d bytes, want %d with %d", result.Code, len(got), tt.code, len(want))
			}
			if result, got := w.readOne(r, w.all(0)); result.Code != wire.None || len(got) == 0 {
				t.Errorf("another segment: code %d, %d bytes", result.Code, len(got))
			}
			if s := r.Stats(); s.Cache.InUseBytes != 0 {
				t.Errorf("stats %+v", s.Cache)
			}
		})
	}
}

// FM-49: what is sound before the damage is served.
func TestWhatLiesBeforeDamageIsServed(t *testing.T) {
	w := three(t)
	r := w.reader()
	w.flip(w.segments()[1], manifest.LogObject, 700, 1000)
	result, got := w.readOne(r, w.all(10))
	if want := w.local(10, result.Next, 1<<20, true); result.Code != wire.None || result.Next != 14 || !bytes.Equal(got, want) {
		t.Errorf("code %d, up to %d, %d bytes", result.Code, result.Next, len(got))
	}
	if result, _ := w.readOne(r, w.all(14)); result.Code != wire.KafkaStorageError {
		t.Errorf("code %d", result.Code)
	}
}

// FM-49: two objects were swapped, or one was cut.
func TestObjectsThatAreNotTheirOwnAreNotServed(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(w *twin, s []manifest.Segment)
	}{
		{"that of the segment before", func(w *twin, s []manifest.Segment) { w.copyObject(s[0], s[1], s[0].Size) }},
		{"that of the segment behind", func(w *twin, s []manifest.Segment) { w.copyObject(s[2], s[1], s[2].Size) }},
		{"cut within a batch", func(w *twin, s []manifest.Segment) { w.copyObject(s[1], s[1], 30) }},
		{"empty", func(w *twin, s []manifest.Segment) { w.copyObject(s[1], s[1], 0) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := three(t)
			tt.change(w, w.segments())
			if result, b := w.readOne(w.reader(), w.all(10)); result.Code != wire.KafkaStorageError || len(b) > 0 {
				t.Errorf("code %d, %d bytes", result.Code, len(b))
			}
		})
	}
}

func (w *twin) copyObject(from, to manifest.Segment, size int64) {
	w.t.Helper()
	data, _, err := object.Read(w.t.Context(), w.bucket, w.key(from, manifest.LogObject), 1<<20)
	if err != nil {
		w.t.Fatal(err)
	}
	w.store(to, manifest.LogObject, data[:size])
}

// BO-092: five partitions with batches larger than their share.
func TestManyPartitionsKeepToTheLimitButForOneBatch(t *testing.T) {
	twins := make([]*twin, 5)
	for i := range twins {
		twins[i] = newTwin(t, uint64(i))
		for range 3 {
			twins[i].data(0, record.None, 1000)
		}
		twins[i].roll()
		twins[i].finish()
		twins[i].upload()
	}
	for _, tt := range []struct {
		maxBytes, partitionBytes int
		batches                  int
	}{{1500, 1100, 1}, {1500, 100, 1}, {500, 1100, 1}, {2400, 1100, 2}, {100_000, 1100, 5}, {100_000, 100, 1}, {0, 1100, 1}} {
		q := Request{MaxBytes: tt.maxBytes, MinOneBatch: true}
		for _, w := range twins {
			q.Partitions = append(q.Partitions, w.fetch(0, 3, tt.partitionBytes))
		}
		r := twins[0].reader(func(o *Options) { o.Store = merged(twins) })
		total, batches := 0, 0
		for i, result := range r.Read(t.Context(), testTime, &q) {
			b := take(t, result)
			if result.Code != wire.None {
				t.Errorf("partition %d: code %d", i, result.Code)
			}
			total += len(b)
			for rest := b; len(rest) > 0; batches++ {
				_, after, err := record.Next(rest)
				if err != nil {
					t.Fatal(err)
				}
				rest = after
			}
		}
		if batches != tt.batches || total > tt.maxBytes && batches > 1 {
			t.Errorf("%d of %d each: %d bytes in %d batches, want %d", tt.maxBytes, tt.partitionBytes, total, batches, tt.batches)
		}
	}
}

// merged is a bucket with what all have: their objects have different names.
func merged(twins []*twin) object.Store {
	for i, w := range twins {
		if i == 0 {
			continue
		}
		for info, err := range w.bucket.List(w.t.Context(), "topics/", "") {
			if err != nil {
				w.t.Fatal(err)
			}
			if strings.Contains(info.Key, "/manifest/") {
				continue
			}
			data, _, err := object.Read(w.t.Context(), w.bucket, info.Key, 1<<20)
			if err != nil {
				w.t.Fatal(err)
			}
			if _, err := twins[0].bucket.Put(w.t.Context(), info.Key, bytes.NewReader(data), object.Condition{}); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	return twins[0].bucket
}

// gate holds up gets until it is opened.
type gate struct{ open chan struct{} }

func (g gate) onGet(string, object.Range) error { <-g.open; return nil }

// FM-45: that the store took too long is an error, and not an answer without records, after which a client asks again at once.
func TestAStoreThatTakesTooLongIsAStorageError(t *testing.T) {
	for offset := range wire.Offset(2) { // from the first the object is read at once, for the second its sidecar is needed
		w := three(t)
		w.bucket.onGet = func(string, object.Range) error {
			return fmt.Errorf("%w: %w", object.ErrUnavailable, context.DeadlineExceeded)
		}
		if result, _ := w.readOne(w.reader(), w.all(10+4*offset)); result.Code != wire.KafkaStorageError {
			t.Errorf("code %d", result.Code)
		}
	}
}

// A look-up whose time is over can be tried again: the first offset of a time, and the largest.
func TestALookUpThatTakesTooLongIsTimedOut(t *testing.T) {
	w := three(t)
	w.bucket.onGet = func(string, object.Range) error { return context.DeadlineExceeded }
	r := w.reader()
	if _, err := r.OffsetForTime(t.Context(), w.p, 0, 12, 30); !errors.Is(err, wire.RequestTimedOut) {
		t.Errorf("by time: %v", err)
	}
	if _, err := r.MaxTimestamp(t.Context(), w.p, 0, 25); !errors.Is(err, wire.RequestTimedOut) {
		t.Errorf("the largest: %v", err)
	}
}

// A read whose time is over is no error, also in the moment in which the context derived from that of the request has not ended yet.
func TestAReadWhoseTimeIsOverIsNoStorageError(t *testing.T) {
	r := three(t).reader()
	over, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	for _, c := range []struct{ ctx, room context.Context }{{over, t.Context()}, {t.Context(), over}, {over, over}} {
		read := &task{Reader: r, ctx: c.ctx, room: c.room}
		if result := read.failed(over.Err()); result.Code != wire.None {
			t.Errorf("code %d", result.Code)
		}
	}
}

// FM-45: while a store hangs, reads that nobody waits for any more pile up to a bound. Behind that there is an error at once.
func TestReadsOfAStoreThatHangsAreRefusedAtABound(t *testing.T) {
	w := three(t)
	g := gate{make(chan struct{})}
	w.bucket.onGet = g.onGet
	var running *sync.WaitGroup
	r := w.reader(func(o *Options) { running = goroutines(o) })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range tasksMax + 1 {
		q := w.all(14)
		want := wire.None
		if i == tasksMax {
			want = wire.KafkaStorageError
		}
		if result := r.Read(ctx, testTime, &q)[0]; result.Code != want || result.Records.Length > 0 {
			t.Fatalf("read %d: code %d, want %d, %d bytes", i, result.Code, want, result.Records.Length)
		}
	}
	close(g.open)
	running.Wait()
	if result, b := w.readOne(r, w.all(14)); result.Code != wire.None || len(b) == 0 {
		t.Errorf("code %d, %d bytes", result.Code, len(b))
	}
}

func TestAReadIsAnsweredInTimeAndItsDownloadServesTheNext(t *testing.T) {
	w := three(t)
	g := gate{make(chan struct{})}
	w.bucket.onGet = g.onGet
	var running *sync.WaitGroup
	r := w.reader(func(o *Options) { running = goroutines(o) })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	q := w.all(0)
	if result := r.Read(ctx, testTime, &q)[0]; result.Code != wire.None || result.Records.Length > 0 {
		t.Errorf("code %d, %d bytes", result.Code, result.Records.Length)
	}
	close(g.open)
	running.Wait()
	gets := w.bucket.count()
	result := r.Read(ctx, testTime, &q)[0] // what is in memory needs no time
	if got, want := take(t, result), w.local(0, 30, 1<<20, true); !bytes.Equal(got, want) {
		t.Errorf("%d bytes, want %d", len(got), len(want))
	}
	running.Wait()
	if w.bucket.count() != gets || gets == 0 {
		t.Errorf("gets: %q", w.bucket.gets)
	}
	if s := r.Stats(); s.Cache.InUseBytes != 0 {
		t.Errorf("what came too late is still in use: %+v", s.Cache)
	}
}

func TestWhatComesTooLateIsLetGoOf(t *testing.T) {
	w := three(t)
	var running *sync.WaitGroup
	r := w.reader(func(o *Options) { running = goroutines(o) })
	if _, b := w.readOne(r, w.all(0)); len(b) == 0 { // the records are in memory, the index is not
		t.Fatal("nothing")
	}
	running.Wait()
	asked, g := make(chan struct{}), gate{make(chan struct{})}
	w.bucket.onGet = func(key string, _ object.Range) error { close(asked); return g.onGet(key, object.Range{}) }
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	q := w.all(5)
	if result := r.Read(ctx, testTime, &q)[0]; result.Code != wire.None || result.Records.Length > 0 {
		t.Errorf("code %d, %d bytes", result.Code, result.Records.Length)
	}
	close(g.open)
	running.Wait()
	if s := r.Stats(); s.Cache.InUseBytes != 0 {
		t.Errorf("what came too late is still in use: %+v", s.Cache)
	}
}

// goroutines has a Reader run what it starts beside it.
func goroutines(o *Options) *sync.WaitGroup {
	var running sync.WaitGroup
	o.Go = func(f func()) { running.Go(f) }
	o.Cache.Plain = false
	return &running
}

func TestAStoreThatIsDownIsNotAskedAgainAndAgain(t *testing.T) {
	w := three(t)
	now := testTime
	away := true
	w.bucket.onGet = func(string, object.Range) error {
		if away {
			return object.ErrUnavailable
		}
		return nil
	}
	var log *bytes.Buffer
	r := w.reader(func(o *Options) {
		o.Now = func() time.Time { return now }
		log = logged(o)
	})
	for range 50 {
		if result, _ := w.readOne(r, w.all(0)); result.Code != wire.KafkaStorageError {
			t.Fatalf("code %d", result.Code)
		}
	}
	if n := strings.Count(log.String(), "a read from the object store failed"); n != 1 {
		t.Errorf("people were told %d times: %s", n, log)
	}
	if n := w.bucket.count(); n != downAfter || !r.Stats().Down {
		t.Errorf("%d gets, want %d", n, downAfter)
	}
	now = now.Add(downFor)
	w.readOne(r, w.all(0))
	if n := w.bucket.count(); n != downAfter+1 {
		t.Errorf("%d gets, want one more", n)
	}
	away = false
	now = now.Add(downFor)
	if result, b := w.readOne(r, w.all(0)); result.Code != wire.None || len(b) == 0 || r.Stats().Down {
		t.Errorf("code %d, %d bytes", result.Code, len(b))
	}
	away = true
	if result, b := w.readOne(r, w.all(0)); result.Code != wire.None || len(b) == 0 {
		t.Errorf("what is in the cache: code %d, %d bytes", result.Code, len(b))
	}
}

func TestGetsKeepToTheByteRate(t *testing.T) {
	w := three(t)
	now := testTime
	var slept time.Duration
	r := w.reader(func(o *Options) {
		o.Now = func() time.Time { return now }
		o.Sleep = func(_ context.Context, d time.Duration) error { slept += d; now = now.Add(d); return nil }
		o.Config = func() Config { return Config{BytesPerSecond: 1000, MaxDecompressedBytes: 1 << 20} }
	})
	var bytes int64
	for from := wire.Offset(0); from < 30; {
		result, b := w.readOne(r, Request{MaxBytes: 300, MinOneBatch: true, Partitions: []Fetch{w.fetch(from, 30, 300)}})
		if len(b) == 0 {
			t.Fatalf("at %d: code %d", from, result.Code)
		}
		bytes, from = bytes+int64(len(b)), result.Next
	}
	if want := time.Duration(bytes) * time.Second / 1000; slept < want*8/10 || slept > want*12/10 {
		t.Errorf("%d bytes took %v, want about %v", bytes, slept, want)
	}
}

// A batch that is larger than what the cache may pin of one partition still comes through.
func TestABatchLargerThanTheLimitComesThrough(t *testing.T) {
	w := newTwin(t, 1)
	w.data(0, record.None, 100)
	w.data(0, record.None, 6000)
	w.data(0, record.None, 100)
	w.roll()
	w.finish()
	w.upload()
	r := w.reader(func(o *Options) {
		o.Cache = cache.Options{MemoryBytes: 14 << 10, BlockBytes: 64, RangeBytes: 1 << 10, Plain: true}
	})
	result, b := w.readOne(r, Request{MaxBytes: 10, MinOneBatch: true, Partitions: []Fetch{w.fetch(1, 3, 10)}})
	if want := w.local(1, 3, 10, true); result.Code != wire.None || !bytes.Equal(b, want) {
		t.Errorf("code %d, %d bytes, want %d", result.Code, len(b), len(want))
	}
}

// One that the cache can't hold is an error that says so, and no silence.
func TestABatchLargerThanTheCacheIsAnError(t *testing.T) {
	w := newTwin(t, 1)
	w.data(0, record.None, 9000)
	w.roll()
	w.finish()
	w.upload()
	var alarm *bytes.Buffer
	r := w.reader(func(o *Options) {
		o.Cache = cache.Options{MemoryBytes: 14 << 10, BlockBytes: 64, RangeBytes: 1 << 10, Plain: true}
		alarm = logged(o)
	})
	result, _ := w.readOne(r, Request{MaxBytes: 10, MinOneBatch: true, Partitions: []Fetch{w.fetch(0, 1, 10)}})
	if result.Code != wire.KafkaStorageError || !strings.Contains(alarm.String(), "tier.cache.bytes") {
		t.Errorf("code %d: %s", result.Code, alarm)
	}
}

func TestNothingIsKnownOfATimeOrEpochOfAnEmptyTier(t *testing.T) {
	w := newTwin(t, 1)
	r := w.reader()
	if got, err := r.OffsetForTime(t.Context(), w.p, 0, 0, 100); got != log.NoTimestampOffset || err != nil {
		t.Errorf("by time: %+v, %v", got, err)
	}
	if got, err := r.MaxTimestamp(t.Context(), w.p, 0, 100); got != log.NoTimestampOffset || err != nil {
		t.Errorf("largest: %+v, %v", got, err)
	}
	if e, at := r.EpochEnd(w.p, 0); e != wire.NoLeaderEpoch || at != wire.NoOffset {
		t.Errorf("epoch %d ends at %d", e, at)
	}
	if result, b := w.readOne(r, w.all(0)); result.Code != wire.None || len(b) > 0 {
		t.Errorf("code %d, %d bytes", result.Code, len(b))
	}
}
