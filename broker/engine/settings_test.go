package engine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// alter sets a setting of all brokers.
func (r *rig) alter(name, value string) {
	r.t.Helper()
	r.alterOf(metadata.ConfigResource{Type: metadata.BrokerResource}, name, value)
}

func (r *rig) alterOf(resource metadata.ConfigResource, name, value string) {
	r.t.Helper()
	a := r.submit(&metadata.IncrementalAlterConfigs{Resources: []metadata.ResourceOps{{
		Resource: resource, Ops: []metadata.ConfigOp{{Name: name, Op: metadata.SetConfig, Value: &value}},
	}}})
	r.until("it is answered", a.done)
	if answer, ok := a.answer.(*metadata.AlterConfigsAnswer); !ok || answer.Resources[0].Result.Code != wire.None {
		r.t.Fatalf("%s=%s: %+v, %v", name, value, a.answer, a.err)
	}
}

func (r *rig) mustProduce(topic string, producer *record.Producer, value string) {
	r.t.Helper()
	if code := r.produceBatch(topic, producer, value); code != wire.None {
		r.t.Fatal(code)
	}
}

// producer.id.expiration.ms counts as it is altered: for logs that are open, and after a start.
func TestTheExpirationOfProducersCanBeAltered(t *testing.T) {
	r := serving(t)
	r.create("t")
	known := func(want int) {
		t.Helper()
		l, ok := r.e.logs.Get(wire.TopicPartition{Topic: "t"})
		if !ok {
			t.Fatal("no log")
		}
		if got := len(l.Producers()); got != want {
			t.Errorf("%d producers are known, not %d", got, want)
		}
	}
	r.mustProduce("t", &record.Producer{ID: 5}, "x")
	r.pass(2 * expiryInterval)
	known(1)
	r.alter("producer.id.expiration.ms", "1000")
	r.pass(2 * expiryInterval)
	known(0)
	r.stop()
	r.open()
	r.until("it serves", r.e.Serving)
	r.mustProduce("t", &record.Producer{ID: 6}, "x")
	r.pass(2 * expiryInterval)
	known(0)
	r.alter("producer.id.expiration.ms", "86400000")
	r.mustProduce("t", &record.Producer{ID: 7}, "x")
	r.pass(2 * expiryInterval)
	known(1)
}

// num.recovery.threads.per.data.dir counts at the next start as it was altered: the executor hears of it before the logs are opened.
func TestLogsAreOpenedUnderTheSettingsThatWereAltered(t *testing.T) {
	r := serving(t)
	r.create("t")
	r.alter("num.recovery.threads.per.data.dir", "3")
	r.kill()
	r.told = nil
	opened := 0
	r.run = func(n int, work func(int)) {
		opened = max(opened, n)
		if r.told == nil || r.told.RecoveryThreadsPerDataDir != 3 {
			t.Errorf("%d logs are opened without it", n)
		}
		for i := range n {
			work(i)
		}
	}
	r.open()
	if opened == 0 {
		t.Fatal("no log was opened: the test shows nothing")
	}
}

// Whatever tier.cache.bytes is, and with a disk for the cache or not, a batch of message.max.bytes can be read from the bucket.
func TestTheLargestBatchCanBeReadFromTheBucket(t *testing.T) {
	const largest = 17 << 20 // half of the least memory would not do
	value := strings.Repeat("x", largest-100)
	for name, set := range map[string][]string{"in memory": nil, "on disk": {"tier.cache.dir=/cache"}} {
		t.Run(name, func(t *testing.T) {
			r := tiered(t, append(set, "tier.cache.bytes=5000000", fmt.Sprint("message.max.bytes=", largest))...)
			r.create("t")
			r.mustProduce("t", nil, "first") // so that the next one does not begin with a block
			r.mustProduce("t", nil, value)
			r.stop()
			r.wipe()
			r.open()
			r.settled()
			if got := r.consume("t"); got[0] != "first" || got[1] != value {
				t.Errorf("%d records of %d and %d bytes", len(got), len(got[0]), len(got[1]))
			}
		})
	}
}

// The memory of the cache beside a disk grows with message.max.bytes, and with what that was altered to before the start.
func TestTheCacheHasRoomForTheLargestBatch(t *testing.T) {
	r := tiered(t, "tier.cache.dir=/cache", "tier.cache.bytes=1073741824", "message.max.bytes=50000000")
	room := func(want int64) {
		t.Helper()
		if r.e.tier.batchBytesMax != want {
			t.Errorf("room for batches of %d bytes, not %d", r.e.tier.batchBytesMax, want)
		}
	}
	room(50_000_000)
	r.alter("message.max.bytes", "90000000")
	r.stop()
	r.open()
	room(90_000_000)
}

// People are told of topics whose largest batches could not be read from the bucket.
func TestBatchesWithoutRoomInTheCacheAreWarnedOf(t *testing.T) {
	r := tiered(t, "tier.cache.bytes=8388608")
	r.create("tiered")
	for _, step := range []struct {
		topic, bytes string
		warned       bool
	}{{"tiered", "16000000", false}, {"tiered", "17000000", true}, {"", "16000000", false}, {"", "17000000", true}} {
		r.logged.Reset()
		if step.topic == "" {
			r.alter("message.max.bytes", step.bytes)
		} else {
			r.alterOf(metadata.ConfigResource{Type: metadata.TopicResource, Name: step.topic}, "max.message.bytes", step.bytes)
		}
		if warned := strings.Contains(r.logged.String(), "the cache of remote data has no room"); warned != step.warned {
			t.Errorf("%+v: %s", step, r.logged.String())
		}
	}
}

func TestABrokerThatCanServeNoGroupSaysSo(t *testing.T) {
	told := func(r *rig) bool { return strings.Contains(r.logged.String(), "consumer groups are refused") }
	if r := serving(t); told(r) {
		t.Errorf("with one replica: %s", r.logged.String())
	}
	if r := serving(t, "offsets.topic.replication.factor=3"); !told(r) {
		t.Errorf("with three: %s", r.logged.String())
	}
}
