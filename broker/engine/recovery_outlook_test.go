package engine

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/vfs"
)

// outlook is what a recovery with these files would say.
func (r *rig) outlook(files *vfs.Mem, passes func(time.Duration)) (RecoveryReport, error) {
	return RecoveryOutlook(r.t.Context(), r.now, Options{
		Config: r.settings(), FS: files, Store: r.bucket,
		Sleep: func(_ context.Context, d time.Duration) error { passes(d); return nil },
	})
}

// What would stop a recovery is said by its outlook, and nothing else.
func TestARecoveryThatWouldBeRefusedHasNoOutlook(t *testing.T) {
	r := tiered(t)
	r.create("t")
	r.pass(time.Second)
	r.produceTo("t", ledger{})
	r.pass(10 * time.Second)
	if _, err := r.outlook(r.files, r.pass); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("beside the broker: %v", err)
	}
	if _, err := r.outlook(vfs.NewMem(), r.pass); !errors.Is(err, ErrClusterAlive) {
		t.Errorf("beside the broker, with new directories: %v", err)
	}
	r.kill()
	before, waited := r.keys(""), time.Duration(0)
	if _, err := r.outlook(r.files, nil); !errors.Is(err, ErrNothingToRecover) {
		t.Errorf("with the directories in place: %v", err)
	}
	report, err := r.outlook(vfs.NewMem(), func(d time.Duration) { waited += d })
	if err != nil || len(report.Lost) != 1 || report.Lost[0].First != 1 {
		t.Errorf("with new directories: %+v, %v", report, err)
	}
	if waited < time.Duration(r.settings().LeaseTTLMs)*time.Millisecond {
		t.Errorf("the lease was watched for %v", waited)
	}
	if after := r.keys(""); !slices.Equal(before, after) {
		t.Errorf("the bucket changed from %v to %v", before, after)
	}
	former := r.files
	r.recover = true
	r.files = vfs.NewMem()
	r.open()
	r.until("it serves", r.e.Serving)
	r.kill()
	if _, err := r.outlook(former, nil); !errors.Is(err, ErrFormerIncarnation) {
		t.Errorf("with the former directories: %v", err)
	}
}

// The outlook of a recovery that was interrupted is its report.
func TestARecoveryThatGoesOnHasItsReportAsOutlook(t *testing.T) {
	r := tiered(t)
	r.create("t")
	r.pass(time.Second)
	r.recover = true
	r.wipe()
	r.open()
	r.closed[LaneTier] = true
	r.until("the recovery has begun", func() bool { return r.committed().ClusterIncarnation() == 1 })
	want, _ := r.e.Recovery()
	r.kill()
	if got, err := r.outlook(r.files, nil); err != nil || got.Incarnation != 1 || !slices.Equal(got.Lost, want.Lost) {
		t.Errorf("%+v, %v", got, err)
	}
}
