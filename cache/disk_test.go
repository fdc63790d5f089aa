package cache

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tidemark-io/tidemark/broker/vfs"
)

func onDisk(fs vfs.FS, blocks int64) func(*Options) {
	return func(o *Options) {
		inline(o)
		o.Plain, o.FS, o.Dir, o.DiskBytes = true, fs, "/cache", blocks*testBlock
	}
}

// churn has everything else leave memory.
func (r rig) churn() {
	for i := range 10 {
		r.read(r.bucket.put(fmt.Sprint("churn", i), 256), 0, 256)
	}
}

func TestTheDiskHasWhatMemoryHasNoMore(t *testing.T) {
	r := newRig(t, onDisk(vfs.NewMem(), 100))
	o := r.bucket.put("a", 250)
	r.read(o, 0, 250)
	r.churn()
	gets := len(r.bucket.asked())
	r.read(o, 0, 250)
	if s := r.cache.Stats(); len(r.bucket.asked()) != gets || s.DiskHits != 4 {
		t.Errorf("gets %q, stats %+v", r.bucket.asked()[gets:], s)
	}
}

// Slow clients that are sent what lies on the disk take nothing from those who read into memory.
func TestWhatIsPinnedOnTheDiskTakesNoRoomInMemory(t *testing.T) {
	r := newRig(t, onDisk(vfs.NewMem(), 100))
	const all = 16 * testBlock // twice what may be in use
	for at := int64(0); at < all; at += testBlock {
		r.read(r.bucket.put("a", all), at, at+testBlock)
	}
	r.churn()
	var slow []*Pin
	for at := int64(0); at < all; at += testBlock {
		slow = append(slow, r.pin(Object{Key: "a", Size: all}, at, at+testBlock))
	}
	if s := r.cache.Stats(); s.InUseBytes != 0 || s.DiskHits != 16 {
		t.Errorf("with pins of the disk alone: %+v", s)
	}
	r.read(r.bucket.put("b", 8*testBlock), 0, 8*testBlock) // all that may be in use
	for i, p := range slow {
		r.compare(p, int64(i)*testBlock, int64(i+1)*testBlock)
		p.Release()
	}
	r.churn()
	r.read(Object{Key: "a", Size: all}, 0, 8*testBlock)
}

func TestBlocksOfTheDiskShareNoPage(t *testing.T) {
	for _, rangeBytes := range []int64{65536, 100_000, 200_000, 8 << 20} {
		c, err := Open(Options{RangeBytes: rangeBytes, Plain: true})
		if err != nil {
			t.Fatal(err)
		}
		if c.BlockBytes()%pageBytes != 0 || c.RangeBytes() > rangeBytes {
			t.Errorf("ranges of %d: blocks of %d, gets of %d", rangeBytes, c.BlockBytes(), c.RangeBytes())
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A block that the disk has takes no buffer: it is sent from there, and stays there as long as it is pinned, whatever else is written.
func TestWhatTheDiskHasIsReadWhereItLies(t *testing.T) {
	const places = 100
	r := newRig(t, onDisk(vfs.NewMem(), places))
	o := r.bucket.put("a", 250)
	p := r.pin(o, 0, 250)
	p.MarkSound(10, 250)
	p.Release()
	r.churn()

	before := r.cache.Stats()
	p = r.pin(o, 0, 250)
	for at := int64(0); at < 250; at += testBlock {
		if piece := p.File().(vfs.Scattered).Piece(at, 250); piece.File != r.cache.disk.file || piece.Length != min(testBlock, 250-at) {
			t.Errorf("at %d: %+v", at, piece)
		}
	}
	if got := p.SoundTo(10); got != 250 {
		t.Errorf("sound to %d: what was verified once is verified again", got)
	}
	for i := range places {
		r.read(r.bucket.put(fmt.Sprint("b", i), 2*testBlock), 0, 2*testBlock)
	}
	r.compare(p, 0, 250)
	p.Release()
	if s := r.cache.Stats(); s.DiskHits != before.DiskHits+4 || s.InUseBytes != 0 {
		t.Errorf("stats %+v, before %+v", s, before)
	}
	for i := range places {
		r.read(r.bucket.put(fmt.Sprint("c", i), 2*testBlock), 0, 2*testBlock)
	}
	if n := r.cache.disk.order.Len(); n != places || len(r.cache.disk.free) != 0 {
		t.Errorf("%d blocks and %d free places of %d", n, len(r.cache.disk.free), places)
	}
}

func TestDamageOnTheDiskIsGotAgain(t *testing.T) {
	for _, tt := range []struct {
		name   string
		damage func(*disk) error
	}{
		{"flipped", func(d *disk) error { _, err := d.file.WriteAt([]byte{1, 2, 3}, 70); return err }},
		{"swapped", func(d *disk) error {
			b := make([]byte, testBlock)
			if _, err := d.file.ReadAt(b, 0); err != nil {
				return err
			}
			_, err := d.file.WriteAt(b, testBlock)
			return err
		}},
		{"truncated", func(d *disk) error { return d.file.Truncate(100) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, onDisk(vfs.NewMem(), 100))
			o := r.bucket.put("a", 128)
			r.read(o, 0, 128)
			r.churn()
			if err := tt.damage(r.cache.disk); err != nil {
				t.Fatal(err)
			}
			gets := len(r.bucket.asked())
			r.read(o, 0, 128)
			if got, want := r.bucket.asked()[gets:], []string{"a 64+64"}; !slices.Equal(got, want) {
				t.Errorf("gets %q, want %q", got, want)
			}
			if s := r.cache.Stats(); s.Damaged != 1 {
				t.Errorf("stats %+v", s)
			}
			r.churn()
			r.read(o, 0, 128) // from the disk, which has it anew
		})
	}
}

func TestTheDiskIsBoundedAndEmptiedAtTheStart(t *testing.T) {
	fs := vfs.NewMem()
	if err := fs.MkdirAll("/cache"); err != nil {
		t.Fatal(err)
	}
	f, err := fs.Create("/cache/blocks")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(make([]byte, 1<<20), 0); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, onDisk(fs, 7))
	for range 3 {
		r.churn()
	}
	if size, err := r.cache.disk.file.Size(); size > 7*testBlock || err != nil {
		t.Errorf("size %d, %v", size, err)
	}
	if n := r.cache.disk.order.Len(); n != 7 {
		t.Errorf("%d blocks on the disk, want 7", n)
	}
}

func TestAFullDiskIsLeftAlone(t *testing.T) {
	fs := vfs.NewMem()
	fs.SetSpace(3 * testBlock)
	r := newRig(t, onDisk(fs, 100))
	r.churn()
	r.churn()
	if !r.cache.disk.failed {
		t.Error("the disk took more than it holds")
	}
}

func TestADiskSmallerThanABlockIsAnError(t *testing.T) {
	if _, err := Open(Options{FS: vfs.NewMem(), Dir: "/cache", DiskBytes: 10}); err == nil {
		t.Error("opened")
	}
}
