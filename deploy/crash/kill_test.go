package crash

import (
	"context"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	rounds = flag.Int("rounds", 8, "how often the broker is killed")
	seed   = flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of the damage")
)

// What is acknowledged with acks=all to an idempotent producer survives any number of kills in mid-append, and of orderly stops
// between them: nothing is missing, nothing is there twice, the order is kept, group offsets do not go back. Between the rounds files
// that can be made again are damaged: BO-033, BO-079, FM-24, FM-26, FM-31, FM-65, FM-73.
func TestKillInMidAppend(t *testing.T) {
	t.Logf("seed %d", *seed)
	// Requests with batches for many partitions, so that kills fall into the midst of them, often.
	const topic, partitions, producers = "owed", 8, 3
	random := rand.New(rand.NewPCG(*seed, 0))
	b := newBroker(t, "log.index.interval.bytes=512")
	b.start()
	b.create(topic, partitions, "segment.bytes=1048576")

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	l := newLedger(t, topic)
	var group sync.WaitGroup
	for i := range producers {
		c := b.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MaxBufferedRecords(2000), kgo.ProducerLinger(time.Millisecond),
			kgo.StopProducerOnDataLossDetected())
		group.Go(func() { l.produce(ctx, c, i, partitions) })
	}
	consumer := &reader{t: t, group: "readers", committed: map[int32]int64{}, client: b.client(
		kgo.ConsumerGroup("readers"), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))}
	group.Go(func() { consumer.read(ctx) })

	probe := b.client()
	admin := kadm.NewClient(probe)
	damage := &vandal{t: t, random: random, logs: b.logs(), done: map[string]int{}}
	var slowest time.Duration
	for round := range *rounds {
		time.Sleep(time.Duration(100+random.IntN(400)) * time.Millisecond) // in mid-append, wherever that is
		if clean := random.IntN(4) == 0; clean {
			b.stop()
			if _, err := os.Stat(filepath.Join(b.logs(), ".kafka_cleanshutdown")); err != nil {
				t.Errorf("round %d: an orderly stop leaves no marker: %v", round, err)
			}
		} else {
			b.Kill()
		}
		damage.strike(random.IntN(6))
		b.start()
		slowest = max(slowest, b.Ready)
		consumer.check(admin, topic)
		l.sample(probe, random, partitions)
		if t.Failed() {
			t.Fatalf("round %d; damage so far: %v\n%s", round, damage, b.Log())
		}
	}
	cancel()
	group.Wait()
	b.Kill()
	b.start()
	records := l.verify(b.client(), admin, partitions)
	consumer.check(admin, topic)
	// An index whose first, middle and last entries are true is found out by a look-up, at the latest.
	times := l.lookUp(b.client(), damage.files(".timeindex"))
	b.stop()
	// Of the snapshots only the newest is ever read; a damaged one among the others lies there until retention takes it.
	files := slices.Concat(damage.files(".log"), damage.files("index"))
	if damaged, text := b.dump(files...); damaged {
		t.Errorf("log dump finds damage:\n%s", marked(text))
	}
	t.Logf("%d rounds, %d records, %d look-ups, %d commits; the slowest start took %v; damage: %v",
		*rounds, records, times, consumer.commits, slowest, damage)
}
