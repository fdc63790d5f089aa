package fsck

import (
	"bytes"
	"errors"
	"testing"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/manifest"
)

// walked is what a walk over a segment of these bytes finds, which serves the offsets up to end.
func walked(data []byte, end wire.Offset, latest int64) (*batchWalk, error) {
	w := &batchWalk{segment: manifest.Segment{
		End: end, Size: int64(len(data)), MaxTimestamp: latest, Epochs: []manifest.EpochStart{{Epoch: 1}},
	}}
	return w, w.run(bytes.NewReader(data))
}

func TestAWalkVerifiesEachBatch(t *testing.T) {
	batch := func(base wire.Offset, epoch wire.LeaderEpoch, count int) []byte {
		w := record.Builder{BaseOffset: base, LeaderEpoch: epoch}
		for i := range count {
			w.Append(int64(base)+int64(i), nil, []byte("v"))
		}
		b, err := w.Build()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	miscounted := record.Batch(batch(0, 1, 2))
	miscounted[60] = 3 // the last byte of the count
	miscounted.SetCRC()
	sound := append(batch(0, 1, 2), batch(2, 1, 2)...)
	for _, c := range []struct {
		name   string
		data   []byte
		end    wire.Offset
		latest int64
		bad    bool
	}{
		{"sound", sound, 4, 3, false},
		{"a gap, as the cleaner leaves it", append(batch(0, 1, 1), batch(2, 1, 2)...), 4, 3, false},
		{"it ends early", sound, 5, 3, true},
		{"it goes on behind the end", sound, 2, 3, true},
		{"another largest timestamp", sound, 4, 4, true},
		{"offsets go back", append(batch(2, 1, 2), batch(0, 1, 2)...), 4, 3, true},
		{"another leader epoch", append(batch(0, 1, 2), batch(2, 2, 2)...), 4, 3, true},
		{"fewer records than the header says", miscounted, 2, 1, true},
		{"cut inside a batch", sound[:len(sound)-1], 4, 3, true},
		{"cut inside a header", sound[:70], 2, 1, true},
	} {
		w, err := walked(c.data, c.end, c.latest)
		if c.bad != errors.Is(err, errBatch) || err != nil && !c.bad {
			t.Errorf("%s: %v", c.name, err)
		}
		if !c.bad && (w.batches != 2 || w.next != 4) {
			t.Errorf("%s: %+v", c.name, w)
		}
	}
}

func FuzzBatchWalk(f *testing.F) {
	var w record.Builder
	w.LeaderEpoch = 1
	w.Append(1, []byte("k"), []byte("v"))
	b, err := w.Build()
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(b))
	f.Add([]byte(b[:70]))
	f.Fuzz(func(t *testing.T, data []byte) {
		if w, err := walked(data, 1, 1); err == nil && w.next != 1 {
			t.Errorf("sound up to %d", w.next)
		} else if err != nil && !errors.Is(err, errBatch) {
			t.Error(err)
		}
	})
}
