package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/replica"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/membership/lease"
	"github.com/tidemark-io/tidemark/tier/chain"
	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/cluster"
	"github.com/tidemark-io/tidemark/tier/object/faultstore"
	"github.com/tidemark-io/tidemark/tier/object/memstore"
)

// rig drives one broker by hand on one goroutine: the time is virtual, files are in memory, the object store has the faults that
// a test wants.
type rig struct {
	t      *testing.T
	now    time.Time
	files  *vfs.Mem
	disk   *vfs.Fault        // files as the broker sees them
	bucket *memstore.Store   // what the store holds, whatever the broker is told
	store  *faultstore.Store // as the broker sees it
	faults func(faultstore.Call) faultstore.Fault
	puts   []string // keys, in the order in which puts arrived
	random *rand.Rand
	starts int
	set    []string   // settings besides those of the rig
	rules  []vfs.Rule // of the disk, from the next start on
	boot   string     // id of the kernel's boot

	recover bool // the broker is started with --recover
	run     func(n int, work func(i int))
	told    *config.Broker // by Reconfigured
	logged  bytes.Buffer   // warnings and errors that people were told

	e      *Engine
	woken  bool
	closed map[Lane]bool // lanes whose tasks are held back
	held   []Task
}

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newRig(t *testing.T, set ...string) *rig {
	r := &rig{
		t: t, now: start, files: vfs.NewMem(), random: rand.New(rand.NewPCG(1, 2)), set: set, boot: "boot",
		closed: map[Lane]bool{},
	}
	r.bucket = memstore.New(func() time.Time { return r.now })
	r.store = faultstore.New(r.bucket, func(c faultstore.Call) faultstore.Fault {
		if c.Op == faultstore.Put {
			r.puts = append(r.puts, c.Key)
		}
		if r.faults == nil {
			return faultstore.None
		}
		return r.faults(c)
	})
	return r
}

// serving is a rig whose broker serves clients.
func serving(t *testing.T, set ...string) *rig {
	t.Helper()
	r := newRig(t, set...)
	r.open()
	r.until("it serves", r.e.Serving)
	return r
}

func (r *rig) settings() *config.Broker {
	r.t.Helper()
	pairs := append([]string{
		"node.id=1", "listeners=PLAINTEXT://127.0.0.1:9092", "log.dirs=/d1,/d2", "store.url=mem://",
		"offsets.topic.replication.factor=1", "offsets.topic.num.partitions=2", "log.segment.delete.delay.ms=1000",
	}, r.set...)
	b, _, err := config.Parse([]config.Source{{Format: config.Flags, Name: "test", Pairs: pairs}})
	if err != nil {
		r.t.Fatal(err)
	}
	return b
}

// tryOpen starts the broker's next incarnation.
func (r *rig) tryOpen() error {
	r.starts++
	r.disk = vfs.NewFault(r.files)
	r.disk.SetRules(r.rules...)
	e, err := Open(r.t.Context(), r.now, Options{
		Config: r.settings(), FS: r.disk, Store: r.store,
		Advertised:  []metadata.Listener{{Name: "PLAINTEXT", Host: "127.0.0.1", Port: 9092, Protocol: "PLAINTEXT"}},
		Incarnation: fmt.Sprint("run", r.starts), BootID: r.boot, Rand: r.random, Logger: slog.New(slog.NewTextHandler(&r.logged, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Wake: func() { r.woken = true }, Recover: r.recover,
		Run: r.run, Reconfigured: func(c *config.Broker) { r.told = c },
	})
	r.e, r.held = e, nil
	return err
}

func (r *rig) open() {
	r.t.Helper()
	if err := r.tryOpen(); err != nil {
		r.t.Fatal(err)
	}
}

// turn does all that is due at this moment.
func (r *rig) turn() {
	for first := true; first || r.woken; first = false {
		r.woken = false
		r.e.Step(r.now)
		for tasks := r.e.Ready(); len(tasks) > 0; tasks = r.e.Ready() {
			for _, task := range tasks {
				if r.closed[task.Lane] {
					r.held = append(r.held, task)
				} else {
					r.e.Complete(r.now, task.Lane, task.Run(r.t.Context()))
				}
			}
			r.e.Step(r.now)
		}
	}
}

// release opens a lane and runs what was held back. What it opens is done in the next turn.
func (r *rig) release(lane Lane) {
	r.closed[lane] = false
	held := r.held
	r.held = nil
	for _, task := range held {
		if task.Lane == lane {
			r.e.Complete(r.now, task.Lane, task.Run(r.t.Context()))
		} else {
			r.held = append(r.held, task)
		}
	}
}

// patience is how much virtual time anything may take.
const patience = 5 * time.Minute

// until lets time pass until done.
func (r *rig) until(what string, done func() bool) {
	r.t.Helper()
	deadline := r.now.Add(patience)
	for r.turn(); !done(); r.turn() {
		next := r.e.NextWake()
		if next.IsZero() || next.After(deadline) {
			r.t.Fatalf("nothing more happens before %s", what)
		}
		r.now = later(r.now.Add(time.Millisecond), next)
	}
}

// pass lets time go by.
func (r *rig) pass(d time.Duration) {
	r.t.Helper()
	end := r.now.Add(d)
	for r.turn(); ; r.turn() {
		next := r.e.NextWake()
		if next.IsZero() || next.After(end) {
			r.now = end
			r.turn()
			return
		}
		r.now = later(r.now.Add(time.Millisecond), next)
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// kill ends the process: what was written stays, nothing is flushed or released.
func (r *rig) kill() {
	r.files = r.files.ProcessCrashClone()
	r.e, r.held, r.woken = nil, nil, false
	r.closed = map[Lane]bool{}
}

// stop ends the broker as SIGTERM does.
func (r *rig) stop() {
	r.t.Helper()
	r.e.Stop()
	r.until("it has stopped", func() bool { return isClosed(r.e.Stopped()) })
	if err := r.e.Close(r.now); err != nil {
		r.t.Fatal(err)
	}
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// asked is a change that was submitted.
type asked struct {
	rig    *rig
	times  int // answered
	answer metadata.Answer
	err    error
	seen   *metadata.Image // as it was when the answer came
}

func (r *rig) submit(change metadata.Change) *asked { return r.submitFor(change, 30*time.Second) }

func (r *rig) submitFor(change metadata.Change, timeout time.Duration) *asked {
	a := &asked{rig: r}
	r.e.Submit(r.now, change, r.now.Add(timeout), func(answer metadata.Answer, err error) {
		a.times++
		a.answer, a.err, a.seen = answer, err, r.e.Image()
	})
	return a
}

func (a *asked) done() bool { return a.times > 0 }

// code is what the client would see: of the whole, or of the first row.
func (a *asked) code() wire.Code {
	a.rig.t.Helper()
	if a.times != 1 {
		a.rig.t.Fatalf("answered %d times", a.times)
	}
	if a.err != nil {
		return wire.CodeOf(a.err)
	}
	switch answer := a.answer.(type) {
	case *metadata.CreateTopicsAnswer:
		return answer.Topics[0].Result.Code
	case *metadata.DeleteTopicsAnswer:
		return answer.Topics[0].Result.Code
	case *metadata.AllocateProducerIDsAnswer:
		return answer.Result.Code
	}
	a.rig.t.Fatalf("no code in %T", a.answer)
	return 0
}

func topicNamed(name string) *metadata.CreateTopics {
	return &metadata.CreateTopics{Topics: []metadata.NewTopic{{Name: name, Partitions: 1, ReplicationFactor: 1}}}
}

// create makes a topic and waits for it.
func (r *rig) create(name string) {
	r.t.Helper()
	a := r.submit(topicNamed(name))
	r.until("the topic is there", a.done)
	if code := a.code(); code != wire.None {
		r.t.Fatal(code)
	}
}

// entries reads the chain as it is in the store.
func (r *rig) entries() []chain.Entry {
	r.t.Helper()
	var entries []chain.Entry
	for e, err := range chain.Read(r.t.Context(), r.bucket, cluster.MetadataPrefix, 1) {
		if err != nil {
			r.t.Fatal(err)
		}
		entries = append(entries, e)
	}
	return entries
}

// committed is the image that the store's chain leads to.
func (r *rig) committed() *metadata.Image {
	r.t.Helper()
	image, err := ReadImage(r.t.Context(), r.bucket)
	if err != nil {
		r.t.Fatal(err)
	}
	return image
}

// consistent fails unless the broker believes what the store holds.
func (r *rig) consistent() {
	r.t.Helper()
	if have, want := r.e.Image(), r.committed(); have.Hash() != want.Hash() {
		r.t.Errorf("the broker's image at offset %d is not that of the chain, at %d", have.Offset(), want.Offset())
	}
}

func (r *rig) leaseRecord() lease.Record {
	r.t.Helper()
	body, _, err := object.Read(r.t.Context(), r.bucket, lease.Key, 1<<20)
	if err != nil {
		r.t.Fatal(err)
	}
	var record lease.Record
	if err := json.Unmarshal(body, &record); err != nil {
		r.t.Fatal(err)
	}
	return record
}

// keys lists the store.
func (r *rig) keys(prefix string) []string {
	r.t.Helper()
	var keys []string
	for info, err := range r.bucket.List(r.t.Context(), prefix, "") {
		if err != nil {
			r.t.Fatal(err)
		}
		keys = append(keys, info.Key)
	}
	return keys
}

// on is a fault for the requests of a kind on keys with a prefix.
func on(op faultstore.Op, prefix string, fault faultstore.Fault) func(faultstore.Call) faultstore.Fault {
	return func(c faultstore.Call) faultstore.Fault {
		if c.Op == op && strings.HasPrefix(c.Key, prefix) {
			return fault
		}
		return faultstore.None
	}
}

// times limits a fault to the first n requests that it meets.
func times(n int, faults func(faultstore.Call) faultstore.Fault) func(faultstore.Call) faultstore.Fault {
	return func(c faultstore.Call) faultstore.Fault {
		f := faults(c)
		if f == faultstore.None || n == 0 {
			return faultstore.None
		}
		n--
		return f
	}
}

func (r *rig) controllerEpoch() wire.LeaderEpoch { return r.e.Image().Controller().Epoch }

// rival is another broker that commits an entry, under an epoch above all others.
func (r *rig) rival(epoch int64, records ...metadata.Record) {
	r.t.Helper()
	fold := &imageFold{image: metadata.Empty()}
	link, err := chain.Open(r.t.Context(), r.bucket, cluster.MetadataPrefix, chain.Options{
		Writer: chain.Writer{Broker: 2, Incarnation: "rival"}, Nonce: func() string { return fmt.Sprint("rival", epoch) },
	}, fold)
	if err != nil {
		r.t.Fatal(err)
	}
	raw := make([]json.RawMessage, len(records))
	for i, record := range records {
		if raw[i], err = metadata.MarshalRecord(record); err != nil {
			r.t.Fatal(err)
		}
	}
	if _, outcome, err := link.Append(r.t.Context(), r.now, epoch, raw); outcome != object.Done {
		r.t.Fatal(outcome, err)
	}
}

// damage flips a bit of an object.
func (r *rig) damage(key string) {
	r.t.Helper()
	body, _, err := object.Read(r.t.Context(), r.bucket, key, 16<<20)
	if err != nil {
		r.t.Fatal(err)
	}
	body[len(body)/2] ^= 1
	if _, err := r.bucket.Put(r.t.Context(), key, bytes.NewReader(body), object.Condition{}); err != nil {
		r.t.Fatal(err)
	}
}

// write makes a file on the broker's disk.
func (r *rig) write(name, text string) {
	r.t.Helper()
	file, err := r.files.Create(name)
	if err != nil {
		r.t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteAt([]byte(text), 0); err != nil {
		r.t.Fatal(err)
	}
}

// dirs lists the log directories.
func (r *rig) dirs() []string {
	r.t.Helper()
	var all []string
	for _, dir := range r.settings().LogDirs {
		names, err := r.files.List(dir)
		if err != nil {
			r.t.Fatal(err)
		}
		all = append(all, names...)
	}
	return all
}

// produce appends one record and tells the code of the answer.
func (r *rig) produce(topic string) wire.Code {
	r.t.Helper()
	return r.produceBatch(topic, nil, "value")
}

// produceBatch appends a batch of one record and tells the code of the answer.
func (r *rig) produceBatch(topic string, producer *record.Producer, value string) wire.Code {
	r.t.Helper()
	b := record.Builder{Producer: producer}
	b.Append(r.now.UnixMilli(), nil, []byte(value))
	batch, err := b.Build()
	if err != nil {
		r.t.Fatal(err)
	}
	code := wire.UnknownServerError
	r.e.Replicas().Produce(r.now, &replica.ProduceRequest{
		Acks: 1, Timeout: time.Second, ZstdAllowed: true,
		Partitions: []replica.ProducePartition{{Topic: topic, Records: batch}},
	}, func(results []replica.ProduceResult) { code = results[0].Code })
	return code
}
