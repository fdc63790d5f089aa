package manifest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/chain"
	"github.com/tidemark-io/tidemark/tier/chain/chaintest"
	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/memstore"
)

// cluster is a few brokers that lead one partition in turn; some believe that they lead and don't any more. Every log has the record of
// offset o and epoch e, so any leader may upload from where the manifest ends.
type cluster struct {
	*chaintest.Crowd
	store  *memstore.Store
	epoch  wire.LeaderEpoch
	nonces int

	done map[Name]bool // of segments whose Commit was Done
	lost map[Name]bool // of those whose Commit was Lost
	tail int64         // the highest entry that somebody was told is Done
}

type broker struct {
	*chaintest.Member
	id       int32
	run      int
	manifest *Manifest
	epoch    wire.LeaderEpoch
	doubt    bool // an outcome was not Done
}

func newCluster(t *testing.T, seed uint64) *cluster {
	c := &cluster{Crowd: chaintest.New(t, rand.New(rand.NewPCG(seed, 2))), done: map[Name]bool{}, lost: map[Name]bool{}}
	c.store = memstore.New(c.Clock)
	for id := range int32(3) {
		b := &broker{id: id, epoch: -1}
		b.Member = c.Join(c.store, func() { c.act(b) })
	}
	return c
}

func (c *cluster) act(b *broker) {
	switch n := c.Rand.IntN(100); {
	case b.manifest == nil:
		c.open(b)
	case n < 6: // the controller makes it the leader; the former one may not know
		c.epoch++
		b.epoch = c.epoch
	case n < 60:
		c.work(b)
	case n < 68:
		c.refresh(b)
	case n < 72:
		_ = b.manifest.Snapshot(c.T.Context(), c.Now)
	case n < 75:
		_, err := b.manifest.Trim(c.T.Context(), c.Now, 0)
		c.mustNotHalt("trim", b, err)
	case n < 91:
		c.Land(b.Member)
	case n < 94:
		c.Wait()
	case n < 97:
		c.Sleep(b.Member)
	default:
		b.manifest, b.epoch, b.doubt, b.run = nil, -1, false, b.run+1 // killed; no epoch is resumed
	}
}

func (c *cluster) nonce() string {
	c.nonces++
	return fmt.Sprintf("%032x", c.nonces)
}

func (c *cluster) open(b *broker) {
	least := c.tail
	m, err := Open(c.T.Context(), b.Store, prefix, Options{
		Writer: chain.Writer{Broker: b.id, Incarnation: fmt.Sprint(b.run)}, Nonce: c.nonce, PageSegments: 4,
	})
	c.mustNotHalt("open", b, err)
	if err == nil {
		b.manifest = m
		c.notBefore("open", b, least)
	}
}

func (c *cluster) refresh(b *broker) {
	least := c.tail
	_, err := b.manifest.Refresh(c.T.Context())
	c.mustNotHalt("refresh", b, err)
	if err == nil {
		b.doubt = false
		c.notBefore("refresh", b, least)
	}
}

// notBefore: who looks after somebody was told Done sees it.
func (c *cluster) notBefore(doing string, b *broker, least int64) {
	if at := b.manifest.State().Position.Number; at < least {
		c.T.Errorf("%s of broker %d ends at entry %d, and %d was done before it began", doing, b.id, at, least)
	}
	if err := b.manifest.State().check(); err != nil {
		c.T.Error(err)
	}
}

// work is what a leader does: its next upload, or upkeep.
func (c *cluster) work(b *broker) {
	if b.epoch < 0 {
		return
	}
	if b.doubt {
		if c.refresh(b); b.doubt {
			return
		}
	}
	s := b.manifest.State()
	var r Record
	switch n := c.Rand.IntN(20); {
	case n < 12:
		r = &AddRecord{c.segment(b, s)}
	case n < 14 && s.End > s.LogStart:
		r = &StartRecord{s.LogStart + 1 + wire.Offset(c.Rand.IntN(int(s.End-s.LogStart)))}
	case n < 16:
		if d, err := b.manifest.MakeDrop(c.T.Context(), c.Now, 3); err == nil && d != nil {
			r = d
		}
	case n < 17 && s.End > s.LogStart:
		if cut, err := b.manifest.MakeCut(c.T.Context(), c.Now, s.End-wire.Offset(c.Rand.IntN(20))); err == nil && cut != nil {
			r = cut
		}
	case n < 19 && b.manifest.PageDue():
		if p, err := b.manifest.MakePage(c.T.Context(), b.epoch); err == nil {
			r = p
		}
	default:
		r = &CloseRecord{s.End}
	}
	if r != nil {
		c.commit(b, r)
	}
}

// segment is the next upload of a broker. Its log has an epoch for each hundred offsets, which is at most its own.
func (c *cluster) segment(b *broker, s *State) Segment {
	end := s.End + wire.Offset(1+c.Rand.IntN(15))
	epoch := b.epoch
	return Segment{
		Name: Name{s.End, epoch, c.nonce()}, Start: s.End, End: end, Size: int64(end - s.End), AuxSize: 1,
		Epochs: []EpochStart{{epoch, s.End}},
	}
}

func (c *cluster) commit(b *broker, r Record) {
	before := c.tail
	outcome, err := b.manifest.Commit(c.T.Context(), c.Now, b.epoch, r)
	c.mustNotHalt("commit", b, err)
	c.Saw[r.recordType()+" "+outcome.String()]++
	add, isAdd := r.(*AddRecord)
	switch {
	case outcome == object.Done:
		at := b.manifest.State().Position.Number
		if at <= before {
			c.T.Errorf("entry %d is done after entry %d was", at, before)
		}
		c.tail = max(c.tail, at)
		if isAdd {
			c.done[add.Name] = true
		}
	case outcome == object.Lost && errors.Is(err, ErrIllegal):
		c.Saw["illegal"]++
	case outcome == object.Lost && isAdd:
		c.lost[add.Name] = true
	}
	b.doubt = outcome != object.Done
	if errors.Is(err, chain.ErrFenced) && outcome == object.Lost && b.epoch < b.manifest.State().LeaderEpoch() {
		b.epoch = -1 // it knows now
		c.Saw["steps down"]++
	}
}

func (c *cluster) mustNotHalt(doing string, b *broker, err error) {
	if errors.Is(err, chain.ErrHalt) {
		c.T.Fatalf("%s of broker %d: %v", doing, b.id, err)
	}
}

// finish replays the whole history as one reader sees it, and holds it against what the leaders were told.
func (c *cluster) finish() {
	c.LandAll()
	m, err := Open(c.T.Context(), c.store, prefix, Options{})
	if err != nil {
		c.T.Fatal(err)
	}
	s := m.State()
	if err := s.check(); err != nil {
		c.T.Error(err)
	}
	var names []Name
	for segment, err := range m.All(c.T.Context()) {
		if err != nil {
			c.T.Fatal(err)
		}
		names = append(names, segment.Name)
	}
	for _, d := range s.Dropped {
		if !d.Page {
			names = append(names, d.Name)
		}
	}
	// Nothing is ever deleted here: what was done is there, live or dropped, once; what was lost is not.
	count := map[Name]int{}
	for _, n := range names {
		count[n]++
		if c.lost[n] {
			c.T.Errorf("%+v is there, and its leader was told that it is lost", n)
		}
	}
	for n := range c.done {
		if count[n] != 1 {
			c.T.Errorf("%+v is done, and is there %d times", n, count[n])
		}
	}
	if !slices.IsSortedFunc(s.Epochs, func(a, b EpochStart) int { return int(a.Epoch - b.Epoch) }) {
		c.T.Errorf("lineage %v", s.Epochs)
	}
}

// TestOneHistory: whatever the store does to them, leaders and those who believe that they lead make one history. Every Done is
// in it once, no Lost is, and who looks afterwards sees it: commits and reads are linearizable.
func TestOneHistory(t *testing.T) {
	seeds, steps := uint64(60), 400
	if testing.Short() {
		seeds = 20
	}
	chaintest.Seeds(t, seeds, steps, func(seed uint64) (*chaintest.Crowd, func()) {
		c := newCluster(t, seed)
		return c.Crowd, c.finish
	}, "add done", "add lost", "add unknown", "page done", "cut done", "drop done", "late put lands", "steps down")
}
