package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier"
	"github.com/tidemark-io/tidemark/tier/object"
)

// RecoveryReport says what a recovery from the bucket has brought back, and what not. It is a file in the first log directory,
// recovery-report.json, and the object recovery/<incarnation>.json.
type RecoveryReport struct {
	Version     int           `json:"version"`
	ClusterID   string        `json:"cluster_id"`
	Incarnation int64         `json:"incarnation"` // the one that began
	BrokerID    wire.BrokerID `json:"broker"`
	CreatedMs   int64         `json:"created_ms"`
	Topics      int           `json:"topics"`
	Partitions  int           `json:"partitions"`
	Segments    int           `json:"segments"` // in the bucket
	Bytes       int64         `json:"bytes"`    // of them
	Complete    bool          `json:"complete"` // every partition was closed whole: nothing is lost
	Lost        []LostRange   `json:"lost"`     // by topic and partition
}

// LostRange is a range of offsets, First to Next-1, that may have been acknowledged and are not in the bucket. Nobody knows where the
// log has ended: Next is as far above as tier.recovery.offset.gap says, and new records begin there.
type LostRange struct {
	Topic     string       `json:"topic"`
	TopicID   wire.TopicID `json:"topic_id"`
	Partition int32        `json:"partition"`
	First     wire.Offset  `json:"first"`
	Next      wire.Offset  `json:"next"`
	Absent    bool         `json:"absent,omitempty"` // the bucket has no record of the partition
}

const (
	reportVersion = 1
	reportFile    = "recovery-report.json"
)

// add takes in what the bucket has of a partition.
func (r *RecoveryReport) add(t *metadata.Topic, partition int32, found tier.Found, whole bool, gap int64) {
	r.Segments += found.Segments
	r.Bytes += found.Bytes
	if whole {
		return
	}
	r.Lost = append(r.Lost, LostRange{
		Topic: t.Name, TopicID: t.ID, Partition: partition, First: found.End, Next: found.End + wire.Offset(gap),
		Absent: found.Segments == 0,
	})
}

// LostRun is one and the same range in partitions of a topic that follow each other, up to LastPartition.
type LostRun struct {
	LostRange
	LastPartition int32
}

// Partitions names the partitions of the run.
func (r LostRun) Partitions() string {
	if r.LastPartition == r.Partition {
		return fmt.Sprint(r.Partition)
	}
	return fmt.Sprintf("%d to %d", r.Partition, r.LastPartition)
}

// LostRuns are the lost ranges in short, for people: those of internal topics last.
func (r *RecoveryReport) LostRuns() []LostRun {
	var users, internal []LostRun
	for _, lost := range r.Lost {
		runs := &users
		if wire.IsInternalTopic(lost.Topic) {
			runs = &internal
		}
		if n := len(*runs); n > 0 {
			last := &(*runs)[n-1]
			same := last.LostRange
			same.Partition = lost.Partition
			if same == lost && lost.Partition == last.LastPartition+1 {
				last.LastPartition++
				continue
			}
		}
		*runs = append(*runs, LostRun{LostRange: lost, LastPartition: lost.Partition})
	}
	return append(users, internal...)
}

// namedMax bounds the runs that an error names.
const namedMax = 10

// summary names what is lost, in a sentence's middle.
func (r *RecoveryReport) summary() string {
	var out strings.Builder
	runs := r.LostRuns()
	for i, run := range runs {
		if i == namedMax {
			out.WriteString(", and more")
			break
		}
		if i > 0 {
			out.WriteString(", ")
		}
		fmt.Fprintf(&out, "%s-%s from offset %d on", run.Topic, run.Partitions(), run.First)
	}
	return out.String()
}

// store writes the report to the bucket and into the first log directory that is online.
func (r *RecoveryReport) store(ctx context.Context, fsys vfs.FS, logs *log.Manager, store object.Store) error {
	body, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the report: %w", err)
	}
	body = append(body, '\n')
	// An attempt that came to no commit may have left one: this is the one that counts.
	if _, err := store.Put(ctx, reportKey(r.Incarnation), bytes.NewReader(body), object.Condition{}); err != nil {
		return fmt.Errorf("store the report: %w", err)
	}
	for _, d := range logs.Dirs() {
		if d.Err == nil {
			return replaceFile(fsys, path.Join(d.Path, reportFile), body)
		}
	}
	return log.ErrStorage
}

// loadReport reads the report of a recovery that was committed.
func loadReport(ctx context.Context, store object.Store, incarnation int64) (report RecoveryReport, err error) {
	body, _, err := object.Read(ctx, store, reportKey(incarnation), reportBytesMax)
	if err != nil {
		return report, fmt.Errorf("read the report: %w", err)
	}
	if err := json.Unmarshal(body, &report); err != nil {
		return report, fmt.Errorf("read the report: %w", err)
	}
	return report, nil
}

// reportBytesMax is more than the largest report has: recoveryPartitionsMax lost ranges with the longest names.
const reportBytesMax = 32 << 20
