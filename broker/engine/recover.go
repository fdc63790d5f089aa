package engine

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/membership/lease"
	"github.com/tidemark-io/tidemark/tier"
	"github.com/tidemark-io/tidemark/tier/object"
)

// recovery takes a cluster up of which nothing is left but the bucket (safety.md 30):
//
//	Open        finds the log directories new, looks at every manifest, and says what is lost
//	elected     the lease is this broker's: it was released, or nobody has renewed it for long enough
//	reporting   the report goes into the bucket and the first log directory
//	committing  one change begins the next incarnation of the cluster, with all partitions in the hands of this broker
//
// From then on it is a broker like any other. Each partition is marked as recovering in the metadata until its leader has begun it
// above all offsets that may have been acknowledged; see recovering.
type recovery struct {
	engine *Engine
	survey
	done  bool          // the incarnation has begun
	first *lease.Record // as it was found
}

// What keeps a broker from starting with the log directories that it has. Compare with errors.Is.
var (
	// ErrDataMissing: what only this broker had is not here, and not all of it is in the bucket.
	ErrDataMissing = errors.New("the log directories are new, and the bucket has not all that was in the former ones")
	// ErrFormerIncarnation: the cluster was recovered from its bucket since the log directories were written.
	ErrFormerIncarnation = errors.New("the cluster was recovered from its bucket without this log directory")
	// ErrNothingToRecover: the log directories are those of this broker, or there are no partitions.
	ErrNothingToRecover = errors.New("the log directories are not new, or the cluster has no partitions")
	// ErrClusterAlive: the cluster that is to be recovered has a controller.
	ErrClusterAlive = errors.New("the cluster is alive")
)

// errRecoveredAway ends a process that was taken for dead.
var errRecoveredAway = errors.New("the cluster was recovered from its bucket: this broker is not part of it any more")

// identity is what the log directories say of themselves.
type identity struct {
	cluster string // "": all are new
	used    []usedDir
	fresh   bool // all can be read, and are new
}

// usedDir is a log directory that is not new.
type usedDir struct {
	path        string
	incarnation int64 // of the cluster
}

func readIdentity(o Options, dirs []string) (identity, error) {
	var id identity
	unread := len(o.Config.LogDirs) - len(dirs)
	for _, dir := range dirs {
		meta, ok, err := log.ReadMeta(o.FS, dir)
		switch {
		case errors.Is(err, log.ErrMeta):
			return identity{}, err
		case err != nil:
			unread++
		case ok:
			id.cluster = meta.ClusterID
			id.used = append(id.used, usedDir{dir, meta.ClusterIncarnation})
		}
	}
	if id.cluster == "" && unread > 0 {
		return identity{}, fmt.Errorf("%d log directories can't be read, and may say which cluster they belong to: %w", unread, log.ErrStorage)
	}
	id.fresh = len(id.used) == 0
	return id, nil
}

// compare compares the directories' incarnation of the cluster with the bucket's. One that is ahead was written by a recovery
// that came to no commit: with nothing in it, it is new. Those are returned.
func (id *identity) compare(fsys vfs.FS, clusterID string, incarnation int64) (ahead []string, err error) {
	for _, dir := range id.used {
		if has := dir.incarnation; has < incarnation {
			return nil, fmt.Errorf("%w: %s is of incarnation %d of cluster %s, which has incarnation %d now. What it holds from the recovery on is not part "+
				"of the cluster, and can't be merged. Move it away and keep it, for the records that the recovery has reported as lost, and start "+
				"with an empty directory", ErrFormerIncarnation, dir.path, has, clusterID, incarnation)
		}
	}
	used := id.used[:0]
	for _, dir := range id.used {
		if dir.incarnation == incarnation {
			used = append(used, dir)
			continue
		}
		names, err := fsys.List(dir.path)
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", dir.path, err)
		}
		for _, name := range names {
			if info, err := fsys.Stat(path.Join(dir.path, name)); err == nil && info.IsDir && strings.Contains(name, "-") {
				return nil, fmt.Errorf("%s is of incarnation %d of cluster %s, and the bucket has incarnation %d: it was emptied, or rolled back",
					dir.path, dir.incarnation, clusterID, incarnation)
			}
		}
		ahead = append(ahead, dir.path)
	}
	id.used = used
	id.fresh = len(used) == 0
	return ahead, nil
}

// settleIncarnation finds out which incarnation of the cluster this broker is part of: that of the bucket, or the one that it is about
// to begin.
func (e *Engine) settleIncarnation(ctx context.Context, now time.Time, o Options, id *identity, image *metadata.Image) (err error) {
	e.clusterIncarnation = image.ClusterIncarnation()
	ahead, err := id.compare(o.FS, e.clusterID, e.clusterIncarnation)
	if err != nil {
		return err
	}
	for _, dir := range ahead {
		if err := o.FS.Remove(path.Join(dir, "meta.properties")); err != nil {
			return fmt.Errorf("make %s new again: %w", dir, err)
		}
	}
	if e.recovery, err = e.planRecovery(ctx, now, o, *id, image); e.recovery != nil {
		e.clusterIncarnation = e.recovery.report.Incarnation
	}
	return err
}

// planRecovery finds out whether the cluster has to be recovered, and what of it is lost. Without Options.Recover it is only where
// nothing is: everything belonged to this broker alone, and it was stopped cleanly.
func (e *Engine) planRecovery(ctx context.Context, now time.Time, o Options, id identity, image *metadata.Image) (*recovery, error) {
	if !id.fresh && o.Recover && recoveringIn(image) {
		return e.resumeRecovery(ctx, o, image.ClusterIncarnation())
	}
	if !id.fresh || image.PartitionCount() == 0 {
		if o.Recover {
			e.logger.Info("nothing is to be recovered", "err", ErrNothingToRecover)
		}
		return nil, nil
	}
	if !o.Recover && !e.alone(image) {
		return nil, nil // others have what this broker had, or it had nothing
	}
	found, err := surveyBucket(ctx, now, e.clusterID, e.config, o.Store, o.Run, image)
	if err != nil {
		return nil, err
	}
	r := &recovery{engine: e, survey: found}
	if len(r.report.Lost) > 0 && !o.Recover {
		return nil, fmt.Errorf("%w. Of cluster %s this broker had %d partitions, and the bucket lacks the end of %d: %s. Give the directories %s back, "+
			"or start with --recover, which brings back what is in the bucket and gives up what is not",
			ErrDataMissing, e.clusterID, r.report.Partitions, len(r.report.Lost), r.report.summary(), strings.Join(o.Config.LogDirs, ", "))
	}
	for _, lost := range r.report.LostRuns() {
		e.logger.Warn("records may be lost", "topic", lost.Topic, "partition", lost.Partitions(), "offset", int64(lost.First), "next_offset", int64(lost.Next))
	}
	e.logger.Warn("the cluster is about to be recovered from its bucket", "cluster_incarnation", r.report.Incarnation,
		"partitions", r.report.Partitions, "complete", r.report.Complete)
	return r, nil
}

// recoveringIn tells whether a recovery has begun, and some of its partitions do not serve yet.
func recoveringIn(image *metadata.Image) bool {
	for t := range image.Topics("") {
		for _, p := range t.Partitions {
			if p.Recovery == metadata.Recovering {
				return true
			}
		}
	}
	return false
}

// resumeRecovery is the recovery that a former process has begun, and was killed before all partitions were through: what it has said to be
// lost holds.
func (e *Engine) resumeRecovery(ctx context.Context, o Options, incarnation int64) (*recovery, error) {
	report, err := loadReport(ctx, o.Store, incarnation)
	if err != nil {
		return nil, fmt.Errorf("the recovery that was begun has no report (a start without --recover brings it to its end): %w", err)
	}
	e.logger.Warn("the recovery of the cluster from its bucket goes on", "cluster_incarnation", incarnation, "complete", report.Complete)
	return &recovery{engine: e, survey: survey{report: report}, done: true}, nil
}

// alone tells whether everything that there is belongs to this broker.
func (e *Engine) alone(image *metadata.Image) bool {
	for b := range image.Brokers() {
		if b.ID != e.self {
			return false
		}
	}
	for t := range image.Topics("") {
		for _, p := range t.Partitions {
			if len(p.Replicas) != 1 || p.Replicas[0] != e.self {
				return false
			}
		}
	}
	return true
}

// survey is what the manifests of all partitions say.
type survey struct {
	found  []metadata.RecoveredPartition
	next   wire.ProducerID // above all ids that were seen
	report RecoveryReport
}

// recoveryPartitionsMax bounds what is recovered: in one entry, so that nobody ever sees a part of it, whose size is bounded.
const recoveryPartitionsMax = 25_000

// surveyBucket looks at the manifests.
func surveyBucket(
	ctx context.Context, now time.Time, clusterID string, settings *config.Broker, store object.Store, run func(n int, work func(i int)),
	image *metadata.Image,
) (survey, error) {
	type look struct {
		topic     *metadata.Topic
		partition int32
		found     tier.Found
		err       error
	}
	if n := image.PartitionCount(); n > recoveryPartitionsMax {
		return survey{}, fmt.Errorf("the cluster has %d partitions, and a recovery is one entry of the metadata chain, which holds %d", n, recoveryPartitionsMax)
	}
	var looks []look
	for t := range image.Topics("") {
		for i := range t.Partitions {
			looks = append(looks, look{topic: t, partition: int32(i)})
		}
	}
	if run == nil {
		run = func(n int, work func(int)) {
			for i := range n {
				work(i)
			}
		}
	}
	run(len(looks), func(i int) {
		l := &looks[i]
		l.found, l.err = tier.Survey(ctx, store, l.topic.Name, l.topic.ID, l.partition)
	})
	s := survey{next: image.NextProducerID(), report: RecoveryReport{
		Version: reportVersion, ClusterID: clusterID, Incarnation: image.ClusterIncarnation() + 1, BrokerID: settings.NodeID,
		CreatedMs: now.UnixMilli(), Topics: image.TopicCount(), Partitions: len(looks), Lost: []LostRange{},
	}}
	for _, l := range looks {
		if l.err != nil {
			return survey{}, fmt.Errorf("look at what the bucket has: %w", l.err)
		}
		p := l.topic.Partition(l.partition)
		whole := l.found.Closed && image.ClosedLast(p, l.found.LeaderEpoch) || p.Empty && l.found.End == 0
		s.found = append(s.found, metadata.RecoveredPartition{
			TopicID: l.topic.ID, Partition: l.partition, LeaderEpoch: l.found.LeaderEpoch, Whole: whole,
		})
		s.next = max(s.next, l.found.NextProducerID)
		s.report.add(l.topic, l.partition, l.found, whole, settings.TierRecoveryOffsetGap)
	}
	s.report.Complete = len(s.report.Lost) == 0
	return s, nil
}

// meets learns how the lease stands. Whoever renews it is alive, and the cluster is not to be recovered.
func (r *recovery) meets(now time.Time, record lease.Record) {
	e := r.engine
	if r.done || record.Incarnation == e.incarnation {
		return
	}
	if r.first == nil {
		r.first = &record
		if record.State == lease.Held {
			e.logger.Info("the former controller's lease has to run out", "holder", int32(record.Holder))
		}
		return
	}
	if record.State == lease.Held && record.Nonce != r.first.Nonce {
		e.fail(now, alive(record))
	}
}

func alive(record lease.Record) error {
	return fmt.Errorf("%w: broker %d holds the controller's lease and renews it: it has to be stopped before the cluster can be recovered",
		ErrClusterAlive, record.Holder)
}

// begin starts the recovery as the controller of a term, unless an earlier one has carried it out.
func (r *recovery) begin(now time.Time, term int64) {
	e := r.engine
	if e.Image().ClusterIncarnation() == r.report.Incarnation {
		r.done = true
		return
	}
	e.lanes.add(LaneChain, func(ctx context.Context) Completion {
		err := r.report.store(ctx, e.fs, e.logs, e.role.lease.store)
		return func(now time.Time) {
			switch {
			case term != e.role.lease.term:
			case err != nil:
				e.logger.Warn("the report of the recovery can't be written", "err", err)
				e.role.lease.resign(now, chainRetry)
			default:
				r.commit(now)
			}
		}
	})
}

// commit begins the incarnation, as the first change of the term.
func (r *recovery) commit(now time.Time) {
	e := r.engine
	change := &metadata.RecoverCluster{
		BrokerID: e.self, Incarnation: r.report.Incarnation, Partitions: r.found, NextProducerID: r.next + skippedProducerIDs,
	}
	if ids := e.directories(); len(ids) == 1 {
		change.Directory = ids[0]
	}
	e.role.submit(now, submission{change: change, deadline: now.Add(e.requestTimeout()), done: func(answer metadata.Answer, err error) {
		recovered, _ := answer.(*metadata.RecoverClusterAnswer)
		switch {
		case err != nil: // another term finds out what became of it
		case recovered.Result.Code != wire.None:
			e.fail(e.stepped, fmt.Errorf("recover the cluster: %s", recovered.Result.Message))
		default:
			r.done = true
			e.logger.Warn("the cluster was recovered from its bucket", "cluster_incarnation", r.report.Incarnation, "complete", r.report.Complete)
		}
	}})
}

// skippedProducerIDs are a block: who had the last one may have used ids that nobody has heard of.
const skippedProducerIDs = 1000

// partOf tells whether this broker is part of the cluster that an image shows. Where it was recovered without it, its process ends.
func (e *Engine) partOf(now time.Time, image *metadata.Image) bool {
	if image.ClusterIncarnation() <= e.clusterIncarnation {
		return true
	}
	e.fail(now, errRecoveredAway)
	return false
}

// Recovery is the report of the recovery of this run; false if there is none.
func (e *Engine) Recovery() (RecoveryReport, bool) {
	if e.recovery == nil {
		return RecoveryReport{}, false
	}
	return e.recovery.report, true
}

// reportKey is where the report of a recovery lies in the store.
func reportKey(incarnation int64) string { return fmt.Sprintf("recovery/%d.json", incarnation) }
