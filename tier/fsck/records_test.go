package fsck_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/fsck"
	"github.com/tidemark-io/tidemark/tier/manifest"
	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/tiertest"
)

// records reads from an offset on, and checks what each holds.
func (r *rig) records(from wire.Offset) (first, end wire.Offset, err error) {
	r.t.Helper()
	first = -1
	for rec, err := range fsck.Records(r.t.Context(), r.store, r.Manifest, from) {
		if err != nil {
			return first, end, err
		}
		if first < 0 {
			first, end = rec.Offset, rec.Offset
		}
		if rec.Offset != end || string(rec.Value) != fmt.Sprint("value-", end) {
			r.t.Fatalf("at %d is %d, %s", end, rec.Offset, rec.Value)
		}
		end++
	}
	return first, end, nil
}

func TestRecordsComeStraightFromTheBucket(t *testing.T) {
	r := newRig(t)
	r.Upload(6, 20)
	r.Page()
	r.Drop(70)
	for from, want := range map[wire.Offset]wire.Offset{0: 70, 70: 70, 119: 119, 120: 120, 301: 301, 359: 359} {
		if first, end, err := r.records(from); first != want || end != 360 || err != nil {
			t.Errorf("from %d: %d to %d, %v", from, first, end, err)
		}
	}
	if first, _, err := r.records(360); first != -1 || err != nil {
		t.Errorf("from the end: %d, %v", first, err)
	}
	for offset := wire.Offset(0); offset < 360; offset += 13 {
		at := tiertest.Start.Add(time.Duration(offset+1) * time.Second).UnixMilli()
		if got, ok, err := fsck.OffsetForTime(t.Context(), r.store, r.Manifest, at); got != max(offset, 70) || !ok || err != nil {
			t.Errorf("at the time of %d: %d, %v, %v", offset, got, ok, err)
		}
	}
	if _, ok, err := fsck.OffsetForTime(t.Context(), r.store, r.Manifest, r.Partition.Now.UnixMilli()+1); ok || err != nil {
		t.Error(ok, err)
	}

	r.delete(r.segment(3, manifest.AuxObject)) // it is read from its beginning
	if _, end, err := r.records(250); end != 360 || err != nil {
		t.Errorf("without a sidecar: up to %d, %v", end, err)
	}
	r.delete(r.segment(3, manifest.LogObject))
	if _, end, err := r.records(0); end != 240 || !errors.Is(err, object.ErrNotExist) {
		t.Errorf("without a segment: up to %d, %v", end, err)
	}
}
