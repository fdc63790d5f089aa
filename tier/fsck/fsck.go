package fsck

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/chain"
	"github.com/tidemark-io/tidemark/tier/manifest"
	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/cluster"
)

// Level says how much is read, by what it costs.
type Level int8

// The levels; each has the checks of those before it.
const (
	List   Level = iota + 1 // a list of the bucket and the manifests: what is missing, has another size, or belongs to nobody
	Aux                     // every sidecar: checksum, and whether its indexes are sound
	Sample                  // some of the segments, whole: their checksums
	All                     // all segments, whole
	Verify                  // every batch of them: checksum, order, epochs, records, and whether the indexes point at batches
)

var levelNames = map[string]Level{"list": List, "aux": Aux, "sample": Sample, "all": All, "verify": Verify}

// ParseLevel is the level of that name.
func ParseLevel(name string) (Level, error) {
	if l, ok := levelNames[name]; ok {
		return l, nil
	}
	return 0, fmt.Errorf("unknown level %q: use list, aux, sample, all or verify", name)
}

// Topic is a topic that the cluster's metadata knows.
type Topic struct {
	Name       string
	ID         wire.TopicID
	Partitions int32
	Removing   bool    // deleted; its objects are on their way out
	Stored     []int32 // partitions that had records, all of which are in the bucket as long as nobody leads them
	Unsure     []int32 // other partitions that may have something in the bucket: only who leads them knows
}

// Options of a check.
type Options struct {
	Store object.Store
	// Metadata reads the cluster's topics. What it says of the metadata's chain becomes a finding. nil: not looked at.
	Metadata func(ctx context.Context) ([]Topic, error)
	// Only limits the check to what it holds for. nil: everything.
	Only func(tp wire.TopicPartition) bool

	Level         Level         // List where it is 0
	SamplePercent int           // of the segments, at level Sample
	Seed          uint64        // chooses them
	Grace         time.Duration // tier.delete.grace.ms, and MinGrace at least
	Repair        bool
	Scratch       Scratch      // for sidecars that are made anew
	Logger        *slog.Logger // nil: silent
}

// Scratch is where a segment lies while its sidecar is made anew: a folder of its own, which is left empty.
type Scratch struct {
	FS     vfs.FS
	Dir    string
	Config func(topic string) config.Topic // how its indexes are made
}

// Kind says what a Finding is about.
type Kind string

// The kinds of findings.
const (
	KindCluster  Kind = "cluster"  // cluster.json is missing or damaged
	KindMetadata Kind = "metadata" // the metadata's chain is damaged
	KindTopic    Kind = "topic"    // objects of a topic that the metadata does not know
	KindChain    Kind = "chain"    // a manifest's chain is damaged
	KindManifest Kind = "manifest" // there is no manifest though there were records, or it lacks what was committed
	KindPage     Kind = "page"     // a page of a manifest is missing or damaged
	KindLineage  Kind = "lineage"  // segments don't join, or their epochs are not the manifest's
	KindMissing  Kind = "missing"  // an object that a manifest names is not there
	KindSize     Kind = "size"     // an object has another size than the manifest says
	KindChecksum Kind = "checksum" // an object has another checksum than the manifest says
	KindIndex    Kind = "index"    // a sidecar is not sound, or not that of its segment
	KindBatch    Kind = "batch"    // a batch is not sound, or not where it belongs
	KindOrphan   Kind = "orphan"   // nobody names it, nor ever will
	KindOverdue  Kind = "overdue"  // dropped, and not deleted though the grace is long over
	KindUploads  Kind = "uploads"  // uploads that were never completed
	KindForeign  Kind = "foreign"  // a key that nothing here has made
)

// Finding is something that is not as it should be.
type Finding struct {
	Kind      Kind   `json:"kind"`
	Data      bool   `json:"data"` // records are lost or in danger; else it only costs room
	Topic     string `json:"topic,omitempty"`
	TopicID   string `json:"topicId,omitempty"`
	Partition *int32 `json:"partition,omitempty"`
	Key       string `json:"key,omitempty"` // of the object, of the first where there are several
	Count     int    `json:"count,omitempty"`
	Bytes     int64  `json:"bytes,omitempty"`
	// Start and End are the offsets concerned, End exclusive; equal where it is not about offsets.
	Start    wire.Offset `json:"start,omitempty"`
	End      wire.Offset `json:"end,omitempty"`
	Text     string      `json:"text"`
	Advice   string      `json:"advice,omitempty"` // what a person may do, where nothing was repaired
	Repaired string      `json:"repaired,omitempty"`
}

// Summary counts what was looked at.
type Summary struct {
	Partitions   int   `json:"partitions"`
	Absent       int   `json:"absent"` // partitions with nothing in the bucket, where that may be right
	Segments     int   `json:"segments"`
	Bytes        int64 `json:"bytes"`
	Dropped      int   `json:"dropped"`      // uploads that wait for their deletion
	Pending      int   `json:"pending"`      // objects that nobody names yet, or not old enough to be orphans
	ObjectsRead  int   `json:"objectsRead"`  // sidecars and segments
	BytesRead    int64 `json:"bytesRead"`    // of them
	Batches      int64 `json:"batches"`      // that were verified
	Records      int64 `json:"records"`      // in them
	Findings     int   `json:"findings"`     // also those that were repaired
	Repaired     int   `json:"repaired"`     // findings
	DataFindings int   `json:"dataFindings"` // about records, and not repaired
}

// ErrNoCluster: the bucket holds nothing at all.
var ErrNoCluster = errors.New("the bucket holds no cluster")

// Check looks at the bucket and tells found of whatever is wrong, in the order of the keys. An error says that the check could not be
// ended: the store does not answer, or holds nothing.
func Check(ctx context.Context, now time.Time, o Options, found func(Finding)) (Summary, error) {
	if o.Level == 0 {
		o.Level = List
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	ctx = object.WithCause(ctx, object.Cause{Kind: object.CauseTool})
	c := &checker{Options: o, now: now, tell: found, pages: manifest.NewPageCache(4), seen: map[string]bool{}}
	err := c.run(ctx)
	return c.sum, err
}

// checker is one run of Check.
type checker struct {
	Options
	now    time.Time
	tell   func(Finding)
	sum    Summary
	pages  *manifest.PageCache
	topics map[wire.TopicID]Topic // nil: not known
	seen   map[string]bool        // prefixes of partitions that have something in the bucket
}

func (c *checker) run(ctx context.Context) error {
	if err := c.checkCluster(ctx); err != nil {
		return err
	}
	if err := c.checkMetadata(ctx); err != nil {
		return err
	}
	for g, err := range groups(ctx, c.Store) {
		if err != nil {
			return fmt.Errorf("list the bucket: %w", err)
		}
		if c.Only != nil && !c.Only(g.tp) {
			continue
		}
		c.seen[g.prefix] = true
		if err := c.checkGroup(ctx, g); err != nil {
			return fmt.Errorf("check %s: %w", g.prefix, err)
		}
	}
	if err := c.checkAbsent(ctx); err != nil {
		return err
	}
	return c.sweepUploads(ctx)
}

func (c *checker) found(f Finding) {
	c.sum.Findings++
	switch {
	case f.Repaired != "":
		c.sum.Repaired++
		f.Advice = ""
	case f.Data:
		c.sum.DataFindings++
	}
	c.tell(f)
}

// storeNow is the time by the store's clock.
func (c *checker) storeNow() time.Time {
	skew, _ := object.SkewOf(c.Store, c.now)
	return c.now.Add(skew.Ahead)
}

func (c *checker) checkCluster(ctx context.Context) error {
	_, err := cluster.Load(ctx, c.Store)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, cluster.ErrMissing):
		for _, err := range c.Store.List(ctx, "", "") {
			if err != nil {
				return fmt.Errorf("list the bucket: %w", err)
			}
			c.found(Finding{
				Kind: KindCluster, Data: true, Key: cluster.Key, Text: "cluster.json is missing, and other objects are there",
				Advice: "brokers refuse to start on this bucket; put the object back from a copy, with the cluster id of the brokers' meta.properties",
			})
			return nil
		}
		return ErrNoCluster
	case errors.Is(err, cluster.ErrFormat):
		c.found(Finding{
			Kind: KindCluster, Data: true, Key: cluster.Key, Text: err.Error(),
			Advice: "put the object back from a copy, or use a newer program",
		})
		return nil
	}
	return err
}

func (c *checker) checkMetadata(ctx context.Context) error {
	if c.Metadata == nil {
		return nil
	}
	topics, err := c.Metadata(ctx)
	switch {
	case errors.Is(err, chain.ErrHalt):
		c.found(Finding{
			Kind: KindMetadata, Data: true, Key: cluster.MetadataPrefix, Text: err.Error(),
			Advice: "no broker starts on this metadata; `tidemark metadata cat` shows what is readable, a copy of the bucket may have the rest",
		})
		return nil
	case err != nil:
		return fmt.Errorf("read the metadata: %w", err)
	}
	c.topics = make(map[wire.TopicID]Topic, len(topics))
	for _, t := range topics {
		c.topics[t.ID] = t
	}
	return nil
}

// checkAbsent looks for partitions of the metadata that have nothing in the bucket.
func (c *checker) checkAbsent(ctx context.Context) error {
	gone := c.absent(func(t Topic) []int32 { return t.Stored })
	c.sum.Absent = len(c.absent(func(t Topic) []int32 { return t.Unsure }))
	if len(gone) == 0 {
		return nil
	}
	if err := c.checkMetadata(ctx); err != nil { // the topic may be deleted, or somebody may lead it, since the metadata was read
		return err
	}
	for _, g := range c.absent(func(t Topic) []int32 { return t.Stored }) {
		there, err := c.anything(ctx, g.prefix)
		if err != nil {
			return err
		}
		if there {
			continue
		}
		f := g.finding(KindManifest, true, "nothing of the partition is in the bucket, where its last leader had put all of its records")
		f.Advice = "put the partition's objects back from a copy or older versions in the bucket"
		c.found(f)
	}
	return nil
}

// absent are those of the partitions of each topic that the list did not show, in the order of their keys.
func (c *checker) absent(of func(Topic) []int32) (list []*group) {
	for _, t := range c.topics {
		for _, i := range of(t) {
			tp := wire.TopicPartition{Topic: t.Name, Partition: i}
			prefix := manifest.Prefix(t.Name, t.ID, i)
			if !c.seen[prefix] && (c.Only == nil || c.Only(tp)) {
				list = append(list, newGroup(prefix))
			}
		}
	}
	slices.SortFunc(list, func(a, b *group) int { return strings.Compare(a.prefix, b.prefix) })
	return list
}

// anything tells whether there are objects of a partition. That a list did not show them once proves nothing.
func (c *checker) anything(ctx context.Context, prefix string) (bool, error) {
	for _, err := range c.Store.List(ctx, prefix+"/", "") {
		if err != nil {
			return false, fmt.Errorf("list %s: %w", prefix, err)
		}
		return true, nil
	}
	return false, nil
}

// sweepUploads gives up uploads that nobody completes. Only the sweep itself can tell how many there are.
func (c *checker) sweepUploads(ctx context.Context) error {
	if !c.Repair || c.Only != nil {
		return nil
	}
	n, err := object.SweepUploads(ctx, c.Store, topicsFolder, c.storeNow().Add(-c.grace()))
	if err != nil {
		return fmt.Errorf("look for uploads that were never completed: %w", err)
	}
	if n > 0 {
		c.found(Finding{Kind: KindUploads, Count: n, Text: "uploads that were never completed", Repaired: "given up"})
	}
	return nil
}

// MinGrace is the least age of what is deleted, whatever was asked for: longer than any upload takes.
const MinGrace = time.Hour

func (c *checker) grace() time.Duration { return max(c.Grace, MinGrace) }
