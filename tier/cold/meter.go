package cold

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/cache"
	"github.com/tidemark-io/tidemark/tier/object"
)

// Failed gets in a row after which the store counts as down, and for how long it is then asked by one get at a time only.
const (
	downAfter = 8
	downFor   = time.Second
)

// Stats is what a Reader has done since it was opened, and what it is at.
type Stats struct {
	Cache    cache.Stats
	Sidecars int64 // gets of segments' sidecars
	Streams  int   // sequential reads that are followed
	Down     bool  // the store did not answer of late: reads of what is not in the cache fail at once
}

// Stats counts.
func (r *Reader) Stats() Stats {
	s := Stats{Cache: r.cache.Stats(), Sidecars: r.sidecars.gets.Load(), Streams: r.streams.len()}
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	s.Down = r.store.downLocked()
	return s
}

// meter is the store, with each get timed, and with failures that come at once while it is down.
type meter struct {
	store object.Store
	now   func() time.Time

	mu      sync.Mutex // guards what follows; a leaf
	failed  int        // gets in a row
	retryAt time.Time  // while failed >= downAfter: when the next get goes through
	perByte float64    // seconds that a byte takes in one get, smoothed; 0: not known
}

func newMeter(s object.Store, now func() time.Time) *meter {
	return &meter{store: s, now: now}
}

func (m *meter) downLocked() bool { return m.failed >= downAfter }

// admit tells whether a get may go out.
func (m *meter) admit(now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.downLocked() {
		return true
	}
	if now.Before(m.retryAt) {
		return false
	}
	m.retryAt = now.Add(downFor)
	return true
}

// get opens a range for a topic.
func (m *meter) get(ctx context.Context, topic, key string, r object.Range) (io.ReadCloser, error) {
	start := m.now()
	if !m.admit(start) {
		return nil, errDown
	}
	o, err := m.store.Get(object.WithCause(ctx, object.Cause{Kind: object.CauseFetch, Topic: topic}), key, r)
	if err != nil {
		m.done(start, 0, err)
		return nil, err
	}
	return &meteredBody{body: o.Body, meter: m, start: start}, nil
}

// done takes note of a get. That an object is missing is an answer, too.
func (m *meter) done(start time.Time, bytes int64, err error) {
	now := m.now()
	took := now.Sub(start)
	failed := err != nil && !errors.Is(err, object.ErrNotExist) && !errors.Is(err, object.ErrRange)
	m.mu.Lock()
	defer m.mu.Unlock()
	if !failed {
		m.failed = 0
	} else if !errors.Is(err, context.Canceled) {
		if m.failed++; m.failed == downAfter {
			m.retryAt = now.Add(downFor)
		}
	}
	if bytes > 0 && took > 0 {
		const weight = 0.2 // of the newest get
		sample := took.Seconds() / float64(bytes)
		if m.perByte == 0 {
			m.perByte = sample
		}
		m.perByte += weight * (sample - m.perByte)
	}
}

// duration is what a get of so many bytes takes, about.
func (m *meter) duration(bytes int64) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Duration(m.perByte * float64(bytes) * float64(time.Second))
}

// meteredBody takes note of a get when its body is closed.
type meteredBody struct {
	body  io.ReadCloser
	meter *meter
	start time.Time
	bytes int64
	err   error
}

func (b *meteredBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	b.bytes += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		b.err = err
	}
	return n, err
}

func (b *meteredBody) Close() error {
	b.meter.done(b.start, b.bytes, b.err)
	return b.body.Close()
}

// get is how the cache reads.
func (r *Reader) get(ctx context.Context, o cache.Object, offset, length int64) (io.ReadCloser, error) {
	if wait := r.rate.spend(length, r.o.Config().BytesPerSecond); wait > 0 && r.o.Sleep != nil {
		if err := r.o.Sleep(ctx, wait); err != nil {
			return nil, err
		}
	}
	return r.store.get(ctx, o.Topic, o.Key, object.Range{Offset: offset, Length: length})
}
