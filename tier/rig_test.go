package tier

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"maps"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/manifest"
	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/faultstore"
	"github.com/tidemark-io/tidemark/tier/object/memstore"
)

var testTopicID = wire.TopicID{1, 2, 3}

// rig is a broker's part around a Manager: logs on a disk in memory, a bucket in memory with faults, and a clock. What was appended
// is kept, to be compared with what can be read.
type rig struct {
	t      *testing.T
	disk   *vfs.Mem
	bucket *memstore.Store
	faults func(faultstore.Call) faultstore.Fault
	store  object.Store
	now    time.Time
	topic  config.Topic
	config Config

	pageSegments int
	confirmed    bool
	unreplicated bool // the high watermark stays
	hook         func(point string)
	wakes        int
	released     []Release

	incarnation int
	boots       int
	nonces      int
	epoch       wire.LeaderEpoch
	since       wire.LeaderEpoch // when a recovery began
	stop        log.Stop
	logs        *log.Manager
	m           *Manager
	names       []string
	ledger      map[string][]string // the values appended, by offset; "" for offsets that nobody has
	rounds      int                 // of busy
}

// grace and retention of the rig are short, its segments small.
const (
	testGrace    = 10 * time.Minute
	testUnsealed = time.Minute
)

func newRig(t *testing.T, topics ...string) *rig {
	t.Helper()
	if len(topics) == 0 {
		topics = []string{"orders"}
	}
	r := &rig{
		t: t, disk: vfs.NewMem(), now: time.UnixMilli(1_800_000_000_000), names: topics, confirmed: true, epoch: wire.NoLeaderEpoch,
		topic: config.Topic{
			CleanupDelete: true, FileDeleteDelayMs: 60_000, FlushMessages: math.MaxInt64, FlushMs: math.MaxInt64,
			IndexIntervalBytes: 256, MaxDecompressedBytes: 1 << 26, RetentionBytes: -1, RetentionMs: -1,
			LocalRetentionBytes: -2, LocalRetentionMs: -2, RemoteStorageEnable: true,
			SegmentBytes: 1 << 10, SegmentIndexBytes: 64 << 10, SegmentMs: 7 * 86_400_000,
		},
		config: Config{
			Parallel: 4, BytesPerSecond: math.MaxInt64, MaxUnsealed: testUnsealed, DeleteGrace: testGrace,
			ManifestRetention: 24 * time.Hour, RecoveryGap: 1000,
		},
		ledger: map[string][]string{},
	}
	r.bucket = memstore.New(func() time.Time { return r.now })
	r.disk.SetClock(func() time.Time { return r.now })
	r.store = faultstore.New(r.bucket, func(c faultstore.Call) faultstore.Fault {
		if r.faults == nil {
			return faultstore.None
		}
		return r.faults(c)
	})
	r.start()
	return r
}

// start opens the disk as a new incarnation.
func (r *rig) start() {
	r.t.Helper()
	r.incarnation++
	if r.stop == log.StopPowerLoss {
		r.boots++
	}
	var uuids byte
	logs, err := log.OpenManager(r.now, log.ManagerOptions{
		FS: r.disk, Dirs: []string{"/data"}, ClusterID: "Y2x1c3Rlci1vbmUtaWQhIQ", BrokerID: 1,
		BootID:        fmt.Sprint("boot-", r.boots),
		DefaultConfig: func(string) config.Topic { return r.topic },
		NewUUID: func() (id [16]byte) {
			uuids++
			id[0], id[1] = byte(r.incarnation), uuids
			return id
		},
	})
	if err != nil {
		r.t.Fatalf("open the logs: %v", err)
	}
	r.logs = logs
	r.stop = log.StopProcessCrash
	random := uint64(0)
	r.m = New(Options{
		Store: r.store, Broker: 1, Incarnation: strconv.Itoa(r.incarnation),
		Nonce:  func() string { r.nonces++; return fmt.Sprintf("n%d", r.nonces) },
		Random: func() uint64 { random += 7919; return random }, Config: func() Config { return r.config },
		Confirmed: func(time.Time) bool { return r.confirmed },
		Released:  func(_ time.Time, l Release) { r.released = append(r.released, l) },
		Wake:      func() { r.wakes++ }, Logger: slog.New(slog.DiscardHandler), PageSegments: r.pageSegments,
		Hook: func(point string) {
			if r.hook != nil {
				r.hook(point)
			}
		},
	})
}

func tpOf(topic string) wire.TopicPartition { return wire.TopicPartition{Topic: topic} }

func (r *rig) log(topic string) *log.Log {
	l, ok := r.logs.Get(tpOf(topic))
	if !ok {
		r.t.Fatalf("no log of %s", topic)
	}
	return l
}

// lead makes this broker the leader of all topics, under the next epoch.
func (r *rig) lead(start Start) {
	r.t.Helper()
	r.epoch++
	for _, topic := range r.names {
		l, err := r.logs.Create(r.now, tpOf(topic), testTopicID, r.topic)
		if err != nil {
			r.t.Fatal(err)
		}
		l.UpdateConfig(r.topic)
		held := r.m.Lead(r.now, Leadership{
			TopicPartition: tpOf(topic), TopicID: testTopicID, Epoch: r.epoch, Log: l, Internal: wire.IsInternalTopic(topic), Start: start,
			RecoverySince: r.since,
		})
		if !held {
			r.begin(topic)
		}
	}
}

// begin is what a replica does when its leadership begins.
func (r *rig) begin(topic string) {
	l := r.log(topic)
	l.AssignEpochStart(r.epoch)
	l.UpdateHighWatermark(l.EndOffset())
}

// produce appends count records to each topic, all replicated at once. Timestamps are those of the clock.
func (r *rig) produce(count int) {
	r.t.Helper()
	for _, topic := range r.names {
		for range count {
			r.append(topic, fmt.Sprintf("%s-%d-%s", topic, len(r.ledger[topic]), bytes.Repeat([]byte("x"), 80)))
		}
	}
}

func (r *rig) append(topic, value string) {
	r.t.Helper()
	var w record.Builder
	w.Append(r.now.UnixMilli(), nil, []byte(value))
	b, err := w.Build()
	if err != nil {
		r.t.Fatal(err)
	}
	l := r.log(topic)
	info, err := l.AppendAsLeader(r.now, b, r.epoch, log.Client)
	if err != nil {
		r.t.Fatal(err)
	}
	if !r.unreplicated {
		l.UpdateHighWatermark(l.EndOffset())
	}
	for wire.Offset(len(r.ledger[topic])) < info.First {
		r.ledger[topic] = append(r.ledger[topic], "")
	}
	r.ledger[topic] = append(r.ledger[topic][:info.First], value)
	r.m.Changed(tpOf(topic))
}

// crashed is what a hook panics with.
var errCrash = errors.New("crash")

// step runs what is due until nothing is, and tells whether it came to the end: a hook may have crashed.
func (r *rig) step() (whole bool) {
	r.t.Helper()
	defer func() {
		if e := recover(); e != nil {
			if err, ok := e.(error); !ok || !errors.Is(err, errCrash) {
				panic(e)
			}
			whole = false
		}
	}()
	for range 1000 {
		jobs := r.m.Due(r.now)
		if len(jobs) == 0 {
			return true
		}
		for _, job := range jobs {
			before := len(r.released)
			job.Run(r.t.Context())(r.now)
			for _, release := range r.released[before:] {
				r.begin(release.TopicPartition.Topic)
			}
		}
	}
	r.t.Fatal("there is always more to do")
	return false
}

// pass lets time go by, in steps that no partition sleeps through.
func (r *rig) pass(d time.Duration) bool {
	r.t.Helper()
	for end := r.now.Add(d); ; {
		if !r.step() {
			return false
		}
		wake := r.m.NextWake()
		if !wake.After(r.now) {
			r.t.Fatalf("to be woken %v ago", r.now.Sub(wake))
		}
		next := r.now.Add(max(pulse, d/50))
		if next.After(end) {
			return true
		}
		r.now = next
	}
}

// settle passes two looks at each partition.
func (r *rig) settle() {
	r.t.Helper()
	if !r.pass(3 * time.Second) {
		r.t.Fatal("it crashed")
	}
}

// crash ends the process, and perhaps the power; what is in the bucket stays.
func (r *rig) crash(stop log.Stop) {
	r.stop = stop
	r.disk = r.disk.ProcessCrashClone()
	r.disk.SetClock(func() time.Time { return r.now })
	r.start()
}

// state reads the manifest as a stranger does.
func (r *rig) open(topic string) *manifest.Manifest {
	r.t.Helper()
	m, err := manifest.Open(r.t.Context(), r.bucket, manifest.Prefix(topic, testTopicID, 0), manifest.Options{PageSegments: r.pageSegments})
	if err != nil {
		r.t.Fatalf("read the manifest: %v", err)
	}
	return m
}

func (r *rig) state(topic string) *manifest.State {
	r.t.Helper()
	return r.open(topic).State()
}

func (r *rig) stats(topic string) Stats {
	r.t.Helper()
	s, ok := r.m.Partition(r.now, tpOf(topic))
	if !ok {
		r.t.Fatalf("no numbers of %s", topic)
	}
	return s
}

// remote reads the bucket's records by offset, and checks every object on the way.
func (r *rig) remote(topic string) map[wire.Offset]string {
	r.t.Helper()
	m := r.open(topic)
	found := map[wire.Offset]string{}
	at := m.State().LogStart
	for s, err := range m.All(r.t.Context()) {
		if err != nil {
			r.t.Fatal(err)
		}
		if from := m.State().SkipLost(at); s.Start > from {
			r.t.Errorf("offsets %d to %d are in no segment", from, s.Start)
		}
		at = s.End
		data := r.object(m, s.Name, manifest.LogObject, s.Size, s.CRC)
		r.object(m, s.Name, manifest.AuxObject, s.AuxSize, s.AuxCRC)
		for offset, value := range recordsOf(r.t, data) {
			if offset < s.Start || offset >= s.End {
				continue
			}
			if _, twice := found[offset]; twice {
				r.t.Errorf("offset %d is there twice", offset)
			}
			found[offset] = value
		}
	}
	return found
}

func (r *rig) object(m *manifest.Manifest, n manifest.Name, kind manifest.Kind, size int64, sum manifest.Checksum) []byte {
	r.t.Helper()
	data, _, err := object.Read(context.Background(), r.bucket, m.Prefix()+"/"+n.Key(kind), math.MaxInt32)
	if err != nil {
		r.t.Fatalf("an object that the manifest names: %v", err)
	}
	if int64(len(data)) != size || crc32.Checksum(data, castagnoli) != uint32(sum) {
		r.t.Fatalf("%s is not what the manifest says", n.Key(kind))
	}
	return data
}

func recordsOf(t *testing.T, data []byte) map[wire.Offset]string {
	t.Helper()
	found := map[wire.Offset]string{}
	for len(data) > 0 {
		b, rest, err := record.Next(data)
		if err == nil {
			err = b.Check()
		}
		if err != nil {
			t.Fatal(err)
		}
		data = rest
		if b.Count() == 0 {
			continue
		}
		for rec, err := range record.Records(b, 1<<20) {
			if err != nil {
				t.Fatal(err)
			}
			found[rec.Offset] = string(rec.Value)
		}
	}
	return found
}

// local reads what lies on the disk.
func (r *rig) local(topic string) map[wire.Offset]string {
	r.t.Helper()
	l := r.log(topic)
	found := map[wire.Offset]string{}
	for at := l.LocalStartOffset(); at < l.EndOffset(); {
		data, err := l.ReadBatches(at, l.EndOffset(), make([]byte, 0, 64<<10))
		if err != nil || len(data) == 0 {
			r.t.Fatalf("read the log at %d of [%d, %d): %d bytes, %v", at, l.LocalStartOffset(), l.EndOffset(), len(data), err)
		}
		maps.Copy(found, recordsOf(r.t, data))
		for len(data) > 0 {
			b, rest, _ := record.Next(data)
			at, data = b.NextOffset(), rest
		}
	}
	return found
}

// check compares what can be read, from the bucket or the disk, with what was appended.
func (r *rig) check() {
	r.t.Helper()
	for _, topic := range r.names {
		l, remote, local := r.log(topic), r.remote(topic), r.local(topic)
		if want := wire.Offset(len(r.ledger[topic])); l.EndOffset() < want {
			r.t.Errorf("%s ends at %d, and %d were acknowledged", topic, l.EndOffset(), want)
		}
		for offset := l.StartOffset(); offset < wire.Offset(len(r.ledger[topic])); offset++ {
			want := r.ledger[topic][offset]
			here, isHere := local[offset]
			there, isThere := remote[offset]
			switch {
			case want == "":
			case isHere && here != want, isThere && there != want:
				r.t.Errorf("%s offset %d: %q here, %q in the bucket, not %q", topic, offset, here, there, want)
			case !isHere && !isThere:
				r.t.Errorf("%s offset %d is gone (log start %d, local start %d, tiered end %d)", topic, offset, l.StartOffset(), l.LocalStartOffset(), r.state(topic).End)
			}
		}
	}
}

// unnamed lists the objects of a topic that its manifest does not name.
func (r *rig) unnamed(topic string) []string {
	r.t.Helper()
	m := r.open(topic)
	named := map[string]bool{}
	for s, err := range m.All(r.t.Context()) {
		if err != nil {
			r.t.Fatal(err)
		}
		named[s.Key(manifest.LogObject)], named[s.Key(manifest.AuxObject)] = true, true
	}
	for _, p := range m.State().Pages {
		named[p.Key(manifest.PageObject)] = true
	}
	for _, d := range m.State().Dropped {
		if d.Page {
			named[d.Key(manifest.PageObject)] = true
		} else {
			named[d.Key(manifest.LogObject)], named[d.Key(manifest.AuxObject)] = true, true
		}
	}
	var unnamed []string
	for info, err := range r.bucket.List(r.t.Context(), m.Prefix()+"/", "") {
		if err != nil {
			r.t.Fatal(err)
		}
		key := info.Key[len(m.Prefix())+1:]
		if _, _, ok := manifest.ParseKey(key); ok && !named[key] {
			unnamed = append(unnamed, key)
		}
	}
	return unnamed
}
