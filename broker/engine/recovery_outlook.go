package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/membership/lease"
	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/cluster"
)

// RecoveryOutlook says what a recovery of the cluster would bring back and give up, or what would keep it from that. It changes nothing.
// Of the options it needs the settings, the files, the store, Run and Sleep.
func RecoveryOutlook(ctx context.Context, now time.Time, o Options) (RecoveryReport, error) {
	id, err := readIdentity(o, o.Config.LogDirs)
	if err != nil {
		return RecoveryReport{}, err
	}
	var used []string // the others may not even be there
	for _, dir := range id.used {
		used = append(used, dir.path)
	}
	locks, err := log.LockDirs(o.FS, used)
	if err != nil {
		return RecoveryReport{}, err
	}
	defer locks.Close()
	found, err := cluster.Load(ctx, o.Store)
	if err != nil {
		return RecoveryReport{}, err
	}
	if id.cluster != "" && id.cluster != found.ID {
		return RecoveryReport{}, fmt.Errorf("%w: %s, the log directories are of %s", cluster.ErrMismatch, found.ID, id.cluster)
	}
	image, err := ReadImage(ctx, o.Store)
	if err != nil {
		return RecoveryReport{}, fmt.Errorf("read the metadata chain: %w", err)
	}
	if _, err := id.compare(o.FS, found.ID, image.ClusterIncarnation()); err != nil {
		return RecoveryReport{}, err
	}
	switch {
	case !id.fresh && recoveringIn(image):
		return loadReport(ctx, o.Store, image.ClusterIncarnation())
	case !id.fresh || image.PartitionCount() == 0:
		return RecoveryReport{}, ErrNothingToRecover
	}
	if err := lapsed(ctx, o); err != nil {
		return RecoveryReport{}, err
	}
	s, err := surveyBucket(ctx, now, found.ID, o.Config, o.Store, o.Run, image)
	return s.report, err
}

// lapsed is an error where somebody renews the controller's lease. One that is held is watched for as long as it lasts.
func lapsed(ctx context.Context, o Options) error {
	first, err := readLease(ctx, o.Store)
	if err != nil || first.State != lease.Held {
		return err
	}
	ms := func(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
	for waited := time.Duration(0); waited < ms(first.TTLMs); waited += ms(first.RenewMs) {
		if err := o.Sleep(ctx, ms(first.RenewMs)); err != nil {
			return err
		}
		record, err := readLease(ctx, o.Store)
		if err != nil || record.State != lease.Held {
			return err
		}
		if record.Nonce != first.Nonce {
			return alive(record)
		}
	}
	return nil
}

// readLease is the controller's lease as it stands, without a state where there never was one.
func readLease(ctx context.Context, store object.Store) (lease.Record, error) {
	done, _ := lease.Do(ctx, store, lease.Action{Op: lease.OpRead}).(lease.ReadDone)
	if done.Err != nil || done.Record == nil {
		return lease.Record{}, done.Err
	}
	return *done.Record, nil
}
