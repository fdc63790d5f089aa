package readonly

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"time"

	"github.com/tidemark-io/tidemark/broker/api"
	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/replica"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/cache"
	"github.com/tidemark-io/tidemark/tier/cold"
	"github.com/tidemark-io/tidemark/tier/manifest"
	"github.com/tidemark-io/tidemark/tier/object"
)

// Self is the id under which the server shows itself to clients.
const Self wire.BrokerID = 1

// Options are what a Server is made of. All are required unless they say otherwise.
type Options struct {
	Store     object.Store
	ClusterID string
	Image     *metadata.Image // of the bucket's cluster, as of At
	At        time.Time       // what is to be served; zero: what there is now
	// Today reads the metadata as it is by now; asked with At alone.
	Today func(ctx context.Context) (*metadata.Image, error)
	// Grace is the cluster's tier.delete.grace.ms: what was dropped before that may be gone.
	Grace     time.Duration
	Config    *config.Broker // as Settings makes it
	Listeners []metadata.Listener
	Random    func() uint32
	NewUUID   func() [16]byte
	// Go runs a function beside the caller; Run calls work(0) .. work(n-1), beside each other if it likes, and waits for all.
	Go     func(func())
	Run    func(n int, work func(i int))
	Now    func() time.Time
	Sleep  func(ctx context.Context, d time.Duration) error // nil: reads beyond the byte rate come back empty
	Wake   func()                                           // NextWake has become earlier; must not block
	Logger *slog.Logger
}

// Settings are those of a server, with more of them where somebody wants others.
func Settings(listen string, set ...string) (*config.Broker, error) {
	pairs := append([]string{
		"node.id=1", "listeners=PLAINTEXT://" + listen, "log.dirs=" + logDir, "store.url=mem://",
		"tier.enable=true", "auto.create.topics.enable=false", "offsets.topic.replication.factor=1",
	}, set...)
	settings, _, err := config.Parse([]config.Source{{Format: config.Flags, Name: "tidemark serve", Pairs: pairs}})
	return settings, err
}

const logDir = "/logs"

// ErrTooOld: what was there at that time may be deleted already.
var ErrTooOld = errors.New("too far back")

// Server answers consumers from a bucket.
type Server struct {
	o          Options
	api        *api.Server
	replicas   *replica.Manager
	logs       *log.Manager
	remote     *remote
	partitions int
	records    int64
	damaged    []wire.TopicPartition
}

// Open reads all manifests, and is ready to serve then. A partition whose manifest is damaged answers KAFKA_STORAGE_ERROR.
func Open(ctx context.Context, now time.Time, o Options) (*Server, error) {
	if !o.At.IsZero() && now.Sub(o.At) > o.Grace {
		return nil, fmt.Errorf("%w: %s is more than tier.delete.grace.ms (%v) ago, what was dropped before then is deleted",
			ErrTooOld, o.At.UTC().Format(time.RFC3339), o.Grace)
	}
	o.Store = Reading(o.Store)
	s := &Server{o: o, remote: &remote{o: &o, manifests: map[wire.TopicPartition]*manifest.Manifest{}}}
	found, err := openManifests(ctx, &o)
	if err != nil {
		return nil, err
	}
	image, err := serving(&o, found)
	if err != nil {
		return nil, fmt.Errorf("make the metadata to be served: %w", err)
	}
	s.remote.reader, err = cold.Open(cold.Options{
		Store: o.Store, Go: o.Go, Now: o.Now, Sleep: o.Sleep, Logger: o.Logger,
		Cache: cache.Options{MemoryBytes: o.Config.TierCacheBytes, RangeBytes: int64(o.Config.TierChunkBytes)},
		Config: func() cold.Config {
			return cold.Config{
				ReadAheadBytes: o.Config.TierReadAheadBytes, BytesPerSecond: o.Config.TierFetchBytesPerSecond,
				MaxDecompressedBytes: o.Config.MaxDecompressedBytes,
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("open the cache: %w", err)
	}
	if err := s.begin(now, image, found); err != nil {
		return nil, errors.Join(err, s.remote.reader.Close())
	}
	return s, nil
}

// begin makes the logs and takes the lead of all of them.
func (s *Server) begin(now time.Time, image *metadata.Image, found []*partition) (err error) {
	files := vfs.NewMem()
	s.logs, err = log.OpenManager(now, log.ManagerOptions{
		FS: files, Dirs: []string{logDir}, ClusterID: s.o.ClusterID, BrokerID: Self, NewUUID: s.o.NewUUID, Logger: s.o.Logger,
		DefaultConfig: func(string) config.Topic { c, _ := config.ResolveTopic(s.o.Config, nil); return c },
	})
	if err != nil {
		return fmt.Errorf("make the logs: %w", err)
	}
	s.remote.logs = s.logs
	for _, p := range found {
		if p.damaged() {
			s.damaged = append(s.damaged, p.tp)
			continue
		}
		s.partitions++
		state := p.manifest.State()
		if state.Position.Number == 0 {
			continue
		}
		s.records += int64(state.End - state.LogStart)
		s.remote.manifests[p.tp] = p.manifest
		if err := s.beginLog(now, image, p, state); err != nil {
			return fmt.Errorf("begin the log of %s: %w", path.Join(p.tp.Topic, fmt.Sprint(p.tp.Partition)), err)
		}
	}
	s.replicas = replica.New(replica.Options{
		Self: Self, Logs: s.logs, Config: s.o.Config, Logger: s.o.Logger, Tier: s.remote,
		Wake: func(time.Time) { s.o.Wake() },
	})
	s.replicas.Apply(now, image, image.Since(metadata.Empty()))
	s.api = api.New(api.Options{
		Self: Self, ClusterID: s.o.ClusterID,
		Config:   func() *config.Broker { return s.o.Config },
		Image:    func() *metadata.Image { return image },
		Replicas: s.replicas, Sessions: replica.NewFetchSessionCache(sessionSlots, s.o.Random),
		Only: served,
	})
	return nil
}

// sessionSlots is Kafka's max.incremental.fetch.session.cache.slots.
const sessionSlots = 1000

// beginLog makes an empty log that begins at the manifest's end.
func (s *Server) beginLog(now time.Time, image *metadata.Image, p *partition, state *manifest.State) error {
	settings, err := config.ResolveTopic(s.o.Config, image.Configs(topicResource(p.tp.Topic)))
	if err != nil {
		return err
	}
	l, err := s.logs.Create(now, p.tp, p.id, settings)
	if err != nil {
		return err
	}
	epochs := make([]log.EpochEntry, len(state.Epochs))
	for i, e := range state.Epochs {
		epochs[i] = log.EpochEntry{Epoch: e.Epoch, Start: e.Start}
	}
	if err := l.StartFromTier(now, state.End, state.LogStart, epochs, nil); err != nil {
		return err
	}
	l.SetTiered(state.End)
	l.UpdateHighWatermark(state.End)
	return nil
}

// Partitions is how many partitions are served, Offsets how many offsets they have together.
func (s *Server) Partitions() (partitions int, offsets int64) { return s.partitions, s.records }

// Damaged are the partitions that can't be served since their manifests are damaged.
func (s *Server) Damaged() []wire.TopicPartition { return s.damaged }

// Advance answers the fetches whose time is over.
func (s *Server) Advance(now time.Time) { s.replicas.Advance(now) }

// NextWake is when Advance will have something to do; zero: not before Wake is called.
func (s *Server) NextWake() time.Time { return s.replicas.NextWake() }

// Close ends what is under way. Nothing may be handled any more.
func (s *Server) Close() error { return s.remote.reader.Close() }
