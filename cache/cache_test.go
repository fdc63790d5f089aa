package cache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/tidemark-io/tidemark/broker/vfs"
)

const testBlock = 64

// bucket is a source of objects that counts what it is asked for.
type bucket struct {
	mu      sync.Mutex
	gets    []string
	objects map[string][]byte
	fault   func(get int, body io.Reader) (io.Reader, error) // nil: none
}

// content is different at every place of every object.
func content(key string, size int) []byte {
	rng := rand.New(rand.NewPCG(uint64(crc32.ChecksumIEEE([]byte(key))), 0))
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

func (s *bucket) put(key string, size int) Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects == nil {
		s.objects = map[string][]byte{}
	}
	s.objects[key] = content(key, size)
	return Object{Key: key, Size: int64(size)}
}

func (s *bucket) get(ctx context.Context, o Object, offset, length int64) (io.ReadCloser, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.gets = append(s.gets, fmt.Sprintf("%s %d+%d", o.Key, offset, length))
	n, fault, data := len(s.gets), s.fault, s.objects[o.Key]
	s.mu.Unlock()
	var body io.Reader = bytes.NewReader(data[min(offset, int64(len(data))):min(offset+length, int64(len(data)))])
	if fault != nil {
		var err error
		if body, err = fault(n, body); err != nil {
			return nil, err
		}
	}
	return io.NopCloser(body), nil
}

func (s *bucket) asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.gets)
}

// rig is a cache of 16 blocks, of which 8 may be in use, over a bucket. Downloads run in goroutines that the test waits for.
type rig struct {
	*testing.T
	bucket *bucket
	cache  *Cache
	jobs   *sync.WaitGroup
}

func newRig(t *testing.T, edit ...func(*Options)) rig {
	r := rig{T: t, bucket: &bucket{}, jobs: &sync.WaitGroup{}}
	o := Options{
		Get: r.bucket.get, Go: func(f func()) { r.jobs.Go(f) },
		MemoryBytes: 16 * testBlock, BlockBytes: testBlock, RangeBytes: 4 * testBlock,
	}
	for _, e := range edit {
		e(&o)
	}
	c, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	r.cache = c
	t.Cleanup(func() {
		r.jobs.Wait()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func inline(o *Options) { o.Go = func(f func()) { f() } }
func plain(o *Options)  { inline(o); o.Plain = true }

func (r rig) pin(o Object, from, to int64) *Pin {
	r.Helper()
	p, err := r.cache.Pin(r.Context(), Want{Object: o, From: from, To: to, Wait: true})
	if err != nil {
		r.Fatalf("Pin [%d, %d): %v", from, to, err)
	}
	return p
}

// read pins a range, compares it with what was put, and lets go.
func (r rig) read(o Object, from, to int64) {
	r.Helper()
	p := r.pin(o, from, to)
	defer p.Release()
	if err := p.Wait(r.Context(), from, min(to, o.Size)); err != nil {
		r.Fatalf("Wait [%d, %d): %v", from, to, err)
	}
	r.compare(p, from, min(to, o.Size))
}

// piece is what goes to a socket first.
func (r rig) piece(p *Pin, at, n int64) []byte {
	r.Helper()
	on := p.File().(vfs.Scattered).Piece(at, n)
	if on.File == nil {
		return p.File().(vfs.Resident).Bytes(at, n)
	}
	piece := make([]byte, on.Length)
	if _, err := on.File.ReadAt(piece, on.Offset); err != nil && !errors.Is(err, io.EOF) {
		r.Fatal(err)
	}
	return piece
}

func (r rig) compare(p *Pin, from, to int64) {
	r.Helper()
	got := make([]byte, to-from)
	if n, err := p.File().ReadAt(got, from); n != len(got) || err != nil {
		r.Fatalf("ReadAt %d: %d, %v", from, n, err)
	}
	want := content(p.Object().Key, int(p.Object().Size))[from:to]
	for at := from; at < to; {
		piece := r.piece(p, at, to-at)
		if len(piece) == 0 || !bytes.HasPrefix(want[at-from:], piece) {
			r.Fatalf("piece at %d: %d bytes that are not its own", at, len(piece))
		}
		at += int64(len(piece))
	}
	view, err := p.View(from, to-from, nil)
	if !bytes.Equal(got, want) || !bytes.Equal(view, want) || err != nil {
		r.Fatalf("bytes [%d, %d) of %s are not its own (%v)", from, to, p.Object().Key, err)
	}
	if sum, err := p.Checksum(from, to); sum != crc32.Checksum(want, castagnoli) || err != nil {
		r.Fatalf("checksum of [%d, %d) of %s: %08x, %v", from, to, p.Object().Key, sum, err)
	}
}

func TestARangeIsGotOnceInAlignedPieces(t *testing.T) {
	r := newRig(t, inline)
	o := r.bucket.put("a", 1000)
	r.read(o, 100, 500)
	r.read(o, 100, 500)
	r.read(o, 600, 2000)
	want := []string{"a 64+192", "a 256+256", "a 576+192", "a 768+232"}
	if got := r.bucket.asked(); !slices.Equal(got, want) {
		t.Errorf("gets %q, want %q", got, want)
	}
	if s := r.cache.Stats(); s.Gets != 4 || s.GetBytes != 872 || s.Misses != 14 || s.InUseBytes != 0 {
		t.Errorf("stats %+v", s)
	}
}

func TestManyReadersShareOneGet(t *testing.T) {
	r := newRig(t)
	o := r.bucket.put("a", 1000)
	open := make(chan struct{})
	r.bucket.fault = func(_ int, body io.Reader) (io.Reader, error) { <-open; return body, nil }
	var readers sync.WaitGroup
	for range 20 {
		readers.Go(func() { r.read(o, 0, 256) })
	}
	close(open)
	readers.Wait()
	if got := r.bucket.asked(); len(got) != 1 {
		t.Errorf("gets %q, want one", got)
	}
}

func TestADownloadOutlivesWhoAskedForIt(t *testing.T) {
	r := newRig(t)
	o := r.bucket.put("a", 200)
	open := make(chan struct{})
	r.bucket.fault = func(_ int, body io.Reader) (io.Reader, error) { <-open; return body, nil }
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p, err := r.cache.Pin(ctx, Want{Object: o, To: 200})
	if err != nil {
		t.Fatalf("a pin that needs no wait: %v", err)
	}
	if err := p.Wait(ctx, 0, 200); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait: %v", err)
	}
	p.Release()
	close(open)
	r.jobs.Wait()
	r.read(o, 0, 200)
	if got := r.bucket.asked(); len(got) != 1 {
		t.Errorf("gets %q, want one", got)
	}
}

func TestBlocksCanBeReadAsTheyArrive(t *testing.T) {
	r := newRig(t)
	o := r.bucket.put("a", 256)
	in, out := io.Pipe()
	r.bucket.fault = func(int, io.Reader) (io.Reader, error) { return in, nil }
	p := r.pin(o, 0, 256)
	defer p.Release()
	body := content("a", 256)
	if _, err := out.Write(body[:100]); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(t.Context(), 0, 64); err != nil {
		t.Fatal(err)
	}
	r.compare(p, 0, 64)
	if _, err := p.View(0, 65, nil); err == nil {
		t.Error("a byte that has not come can be viewed")
	}
	if _, err := p.File().ReadAt(make([]byte, 65), 0); err == nil {
		t.Error("a byte that has not come can be read")
	}
	if piece := p.File().(vfs.Resident).Bytes(64, 1); piece != nil {
		t.Error("a byte that has not come can be sent")
	}
	if _, err := out.Write(body[100:]); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(t.Context(), 0, 256); err != nil {
		t.Fatal(err)
	}
	r.compare(p, 0, 256)
}

func TestWhatDoesNotFitWaitsOrIsRefused(t *testing.T) {
	r := newRig(t)
	a, b := r.bucket.put("a", 600), r.bucket.put("b", 600)
	if _, err := r.cache.Pin(t.Context(), Want{Object: a, To: 600, Wait: true}); !errors.Is(err, ErrFull) {
		t.Errorf("more than may be in use: %v", err)
	}
	p := r.pin(a, 0, 448)
	if _, err := r.cache.Pin(t.Context(), Want{Object: b, To: 128}); !errors.Is(err, ErrFull) {
		t.Errorf("no room: %v", err)
	}
	r.read(b, 0, 64)
	again := r.pin(a, 0, 64) // a unit is free, and goes back at once
	again.Release()
	done := make(chan struct{})
	go func() { defer close(done); r.read(b, 0, 128) }()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.cache.Pin(ctx, Want{Object: b, To: 128, Wait: true}); !errors.Is(err, ErrFull) {
		t.Errorf("no room and no time: %v", err)
	}
	if err := p.Wait(t.Context(), 0, 448); err != nil {
		t.Fatal(err)
	}
	p.Release()
	<-done
}

func TestWhatIsBroughtInAheadTakesHalfOfTheWindow(t *testing.T) {
	r := newRig(t, inline)
	a, b := r.bucket.put("a", 256), r.bucket.put("b", 2000)
	p := r.pin(a, 0, 256)
	q, err := r.cache.Pin(t.Context(), Want{Object: b, From: 0, To: 10, Ahead: 2000})
	if err != nil {
		t.Fatal(err)
	}
	q.Release()
	p.Release()
	r.cache.Load(b, 256, 512) // room for a single block is not worth a get
	if got, want := r.bucket.asked(), []string{"a 0+256", "b 0+256"}; !slices.Equal(got, want) {
		t.Errorf("gets %q, want %q", got, want)
	}
	if s := r.cache.Stats(); s.Refused != 0 || s.InUseBytes != 0 {
		t.Errorf("stats %+v", s)
	}
	r.read(b, 64, 128)
	r.cache.Load(b, 1024, 1280)
	if got := r.bucket.asked()[2:]; !slices.Equal(got, []string{"b 1024+128"}) {
		t.Errorf("gets %q, want one", got)
	}
}

func TestWhatIsStillToBeReadLeavesLastUnlessNobodyComes(t *testing.T) {
	r := newRig(t, plain)
	a, b, c := r.bucket.put("a", 384), r.bucket.put("b", 10000), r.bucket.put("c", 384)
	r.cache.Load(a, 0, 384)
	for at := int64(0); at < 10*testBlock; at += testBlock {
		r.read(b, at, at+testBlock)
	}
	gets := len(r.bucket.asked())
	r.read(a, 0, 128)
	if r.cache.Load(c, 0, 384); len(r.bucket.asked()) != gets+1 || r.cache.unread != 4 {
		t.Fatalf("gets %q, %d unread", r.bucket.asked()[gets:], r.cache.unread)
	}
	for at := int64(640); at < 640+30*testBlock; at += testBlock {
		r.read(b, at, at+testBlock)
	}
	if n := r.cache.unread; n > 1 {
		t.Errorf("%d blocks that nobody came for are still there", n)
	}
}

// FM-52: evicted in use.
func TestWhatIsPinnedStaysWhateverComesAndGoes(t *testing.T) {
	r := newRig(t, inline)
	a := r.bucket.put("a", 150)
	p := r.pin(a, 0, 150)
	if err := p.Wait(t.Context(), 0, 150); err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		r.read(r.bucket.put(fmt.Sprint("other", i), 320), 0, 320)
	}
	r.compare(p, 0, 150)
	gets := len(r.bucket.asked())
	p.Release()
	r.read(a, 0, 150)
	if len(r.bucket.asked()) != gets {
		t.Error("what was just in use had to be got again")
	}
}

// FM-52: over budget; wrong bytes under load.
func TestATinyCacheWith64RandomReaders(t *testing.T) {
	for _, disk := range []int64{0, 40 * testBlock} {
		t.Run(fmt.Sprint("disk ", disk), func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.FS, o.Dir, o.DiskBytes = vfs.NewMem(), "/cache", disk })
			objects := make([]Object, 8)
			for i := range objects {
				objects[i] = r.bucket.put(fmt.Sprint("o", i), 900+i)
			}
			r.bucket.fault = func(n int, body io.Reader) (io.Reader, error) {
				if n%17 == 0 {
					return io.LimitReader(body, 70), nil
				}
				return body, nil
			}
			var readers sync.WaitGroup
			for i := range 64 {
				rng := rand.New(rand.NewPCG(1, uint64(i)))
				readers.Go(func() {
					for range 60 {
						o := objects[rng.IntN(len(objects))]
						from := rng.Int64N(o.Size)
						to := min(from+1+rng.Int64N(300), o.Size)
						p := r.pin(o, from, to)
						switch err := p.Wait(t.Context(), from, to); {
						case err == nil:
							r.compare(p, from, to)
						case !errors.Is(err, ErrShort):
							t.Errorf("Wait: %v", err)
						}
						if rng.IntN(20) == 0 {
							p.Drop(from, to)
						}
						p.Release()
						if s := r.cache.Stats(); s.Bytes > 16*testBlock || s.InUseBytes > 8*testBlock {
							t.Errorf("stats %+v", s)
						}
					}
				})
			}
			readers.Wait()
			r.jobs.Wait()
			s := r.cache.Stats()
			if s.InUseBytes != 0 || r.cache.count != r.cache.idle.Len()+r.cache.ahead.Len() {
				t.Errorf("something is still in use: %+v, window %d, idle %d", s, r.cache.count, r.cache.idle.Len())
			}
			if (s.DiskHits > 0) != (disk > 0) {
				t.Errorf("disk hits %d", s.DiskHits)
			}
		})
	}
}

func TestAFailedDownloadIsTriedAnewByTheNext(t *testing.T) {
	away := errors.New("away")
	tests := []struct {
		name  string
		fault func(get int, body io.Reader) (io.Reader, error)
		want  error // of the first read
		gets  int   // of both
	}{
		{"no answer", func(n int, b io.Reader) (io.Reader, error) {
			if n == 1 {
				return nil, away
			}
			return b, nil
		}, away, 2},
		{"object is short", func(n int, b io.Reader) (io.Reader, error) { return io.LimitReader(b, 10), nil }, ErrShort, 2},
		{"answer breaks off after a block", func(n int, b io.Reader) (io.Reader, error) {
			if n == 1 {
				return io.LimitReader(b, 100), nil
			}
			return b, nil
		}, nil, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, inline)
			o := r.bucket.put("a", 256)
			r.bucket.fault = tt.fault
			for i := range 2 {
				p := r.pin(o, 0, 256)
				if err := p.Wait(t.Context(), 0, 256); i == 0 && !errors.Is(err, tt.want) {
					t.Errorf("Wait: %v, want %v", err, tt.want)
				}
				p.Release()
			}
			if got := r.bucket.asked(); len(got) != tt.gets {
				t.Errorf("gets %q, want %d", got, tt.gets)
			}
			if s := r.cache.Stats(); s.InUseBytes != 0 {
				t.Errorf("stats %+v", s)
			}
		})
	}
}

// FM-52: poisoned.
func TestWhatAReaderFindsDamagedIsGotAgain(t *testing.T) {
	r := newRig(t, inline, func(o *Options) { o.FS, o.Dir, o.DiskBytes = vfs.NewMem(), "/cache", 1<<20 })
	o := r.bucket.put("a", 256)
	p := r.pin(o, 0, 256)
	other := r.pin(o, 0, 64)
	p.MarkSound(0, 256)
	p.Drop(60, 130)
	again := r.pin(o, 0, 256)
	defer again.Release()
	r.compare(again, 0, 256)
	r.compare(other, 0, 64) // still what it was
	other.Release()
	p.Release()
	if got, want := r.bucket.asked(), []string{"a 0+256", "a 0+192"}; !slices.Equal(got, want) {
		t.Errorf("gets %q, want %q", got, want)
	}
	if got := again.SoundTo(192); got != 256 || again.SoundTo(0) != 0 {
		t.Errorf("sound to %d and %d: what was got again is not verified yet", got, again.SoundTo(0))
	}
	if s := r.cache.Stats(); s.Damaged != 3 {
		t.Errorf("stats %+v", s)
	}
}

func TestSoundnessReachesOverBlocks(t *testing.T) {
	r := newRig(t, inline)
	o := r.bucket.put("a", 300)
	p := r.pin(o, 0, 300)
	defer p.Release()
	steps := []struct{ from, to, at, want int64 }{
		{10, 40, 10, 40},
		{10, 40, 9, 9},
		{40, 200, 10, 200},
		{200, 300, 64, 300},
		{0, 5, 0, 5}, // apart from the rest of its block, which it replaces
		{0, 64, 0, 300},
	}
	for _, s := range steps {
		p.MarkSound(s.from, s.to)
		if got := p.SoundTo(s.at); got != s.want {
			t.Errorf("after [%d, %d): sound from %d to %d, want %d", s.from, s.to, s.at, got, s.want)
		}
	}
}

func TestTrimLetsGoOfTheRest(t *testing.T) {
	r := newRig(t, inline)
	o := r.bucket.put("a", 400)
	p := r.pin(o, 10, 400)
	p.Trim(70, 129)
	if s := r.cache.Stats(); s.InUseBytes != 2*testBlock {
		t.Errorf("in use %d", s.InUseBytes)
	}
	r.compare(p, 70, 129)
	if _, err := p.View(10, 5, nil); err == nil {
		t.Error("what was let go of can be viewed")
	}
	if err := p.Wait(t.Context(), 192, 193); err == nil {
		t.Error("what was let go of can be waited for")
	}
	p.Release()
	p.Release()
	if s := r.cache.Stats(); s.InUseBytes != 0 {
		t.Errorf("in use %d", s.InUseBytes)
	}
}

func TestAClosedCachePinsNothing(t *testing.T) {
	r := newRig(t)
	o := r.bucket.put("a", 100)
	p := r.pin(o, 0, 100)
	if err := p.Wait(t.Context(), 0, 100); err != nil {
		t.Fatal(err)
	}
	if err := r.cache.Close(); err != nil {
		t.Fatal(err)
	}
	r.compare(p, 0, 100)
	p.Release()
	if _, err := r.cache.Pin(t.Context(), Want{Object: o, To: 100}); !errors.Is(err, ErrClosed) {
		t.Errorf("Pin: %v", err)
	}
	r.cache.Load(o, 0, 100)
	if got := r.bucket.asked(); len(got) != 1 {
		t.Errorf("gets %q", got)
	}
}

func TestPlainCachesDoTheSameForTheSame(t *testing.T) {
	run := func() []string {
		r := newRig(t, plain)
		rng := rand.New(rand.NewPCG(7, 7))
		for range 300 {
			o := r.bucket.put(fmt.Sprint("o", rng.IntN(5)), 600)
			from := rng.Int64N(o.Size)
			r.read(o, from, from+1+rng.Int64N(200))
		}
		return r.bucket.asked()
	}
	if a, b := run(), run(); !slices.Equal(a, b) || len(a) < 50 {
		t.Errorf("%d gets and %d gets differ", len(a), len(b))
	}
}
