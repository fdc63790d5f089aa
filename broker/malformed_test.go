package broker_test

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/api"
	"github.com/tidemark-io/tidemark/broker/api/apitest"
	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/wire"
)

var (
	malformedFor  = flag.Duration("malformed", 5*time.Second, "how long requests are damaged at random")
	malformedSeed = flag.Uint64("malformed.seed", 1, "seed of what is damaged")
)

const (
	attackers = 4
	// attackWait is how long an attacker waits for what comes of a request: parked ones answer later, or never.
	attackWait = 20 * time.Millisecond
	// stallMax is how long a well-behaved client may wait for one round of produce and fetch, on a machine that is busy.
	stallMax = 5 * time.Second
	// heapPeak bounds the heap of broker, attackers and clients together; heapGrowth what is left of it, mostly in pools of buffers
	// and decoders, which are bounded.
	heapPeak   = 400 << 20
	heapGrowth = 64 << 20

	attackedTopic = "attacked"
)

// FM-85, FM-86, FM-87, BO-099: every request that is served, in every version, cut off at each byte, with bits flipped and lengths
// blown up. Nothing panics, another client does not stall, memory stays flat, and the broker serves on.
func TestMalformedRequests(t *testing.T) {
	r := startBroker(t, "auto.create.topics.enable=false")
	r.create(attackedTopic, 2)
	r.create("beside", 1)
	r.create("still-serving", 1)
	r.wantServing()
	soundBatches()
	goroutines := runtime.NumGoroutine()
	heap := heapInUse()
	beside := startBeside(t, r)
	peak := watchHeap()

	campaign := &campaign{addr: r.addr, seed: *malformedSeed}
	sent := campaign.cutOff(t)
	t.Logf("%d requests were cut off", sent)
	sent = campaign.damage(t, *malformedFor)
	t.Logf("%d requests were damaged", sent)

	rounds, longest := beside.end()
	t.Logf("beside them: %d rounds, the longest took %v", rounds, longest)
	if longest > stallMax {
		t.Errorf("another client waited for %v", longest)
	}
	if most := peak(); most > heapPeak {
		t.Errorf("the heap grew to %d MiB", most>>20)
	} else {
		t.Logf("the heap was %d MiB at most", most>>20)
	}
	r.wantServing()
	eventually(t, "the connections' goroutines end", func() bool { return runtime.NumGoroutine() <= goroutines+10 })
	if grown := heapInUse() - heap; grown > heapGrowth {
		t.Errorf("%d MiB are left", grown>>20)
	} else {
		t.Logf("%d KiB are left", grown>>10)
	}
	if said := r.warnings.String(); strings.Contains(said, "level=ERROR") {
		t.Errorf("errors are logged:\n%.2000s", said)
	}
	before := len(r.warnings.String())
	r.restart()
	r.wantServing()
	if said := r.warnings.String()[before:]; said != "" {
		t.Errorf("the next start has something to say of what was written:\n%.2000s", said)
	}
}

// BO-099, FM-85: a frame that has room for what it claims is refused before anything is made of it, and small ones are, too, that
// claim what they have no room for.
func TestBO099ClaimsAreRefusedBeforeTheyCostMemory(t *testing.T) {
	r := startBroker(t)
	const room = 24 << 20
	compact := binary.AppendUvarint(nil, room/4)
	for name, c := range map[string]struct {
		key     wire.APIKey
		version int16
		head    []byte
		room    int
	}{
		"names":                {3, 0, binary.BigEndian.AppendUint32(nil, room/4), room},
		"topics of a produce":  {0, 9, slices.Concat([]byte{0, 0, 1, 0, 0, 0, 1}, compact), room},
		"groups of a fetch":    {9, 8, compact, room},
		"tagged fields":        {3, 9, slices.Concat([]byte{0, 0, 0, 0}, compact), room},
		"more than room":       {3, 0, []byte{0x7f, 0xff, 0xff, 0xff}, 100},
		"more than room, flat": {9, 8, []byte{0xff, 0xff, 0xff, 0xff, 0x0f}, 10},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			connection := r.dial()
			if _, err := connection.Write(apitest.Frame(c.key, c.version, 1, append(c.head, make([]byte, c.room)...))); err != nil {
				t.Fatal(err)
			}
			if !connection.closed() {
				t.Error("it is answered")
			}
			runtime.ReadMemStats(&after)
			// The frame is made here and read there, into buffers that double.
			if took := after.TotalAlloc - before.TotalAlloc; took > uint64(6*c.room+1<<20) {
				t.Errorf("%d MiB were allocated", took>>20)
			}
			r.wantServing()
		})
	}
}

// campaign sends malformed requests.
type campaign struct {
	addr string
	seed uint64
}

// cutOff sends every request in every version, cut off at each byte, and whole.
func (c *campaign) cutOff(t *testing.T) (sent int) {
	work := make(chan []byte)
	var group sync.WaitGroup
	for range attackers {
		group.Go(func() { attack(t, c.addr, func() []byte { return <-work }) })
	}
	random := rand.New(rand.NewPCG(c.seed, 0))
	table := api.Table()
	for i := range table {
		for version := table[i].Min; version <= table[i].Max; version++ {
			body := requestBody(random, &table[i], version)
			body = body[:min(len(body), 400)] // further ones cut batches, as bits flipped there do
			for n := range len(body) + 1 {
				work <- apitest.Frame(table[i].Key, version, 1, body[:n])
				sent++
			}
		}
	}
	close(work)
	group.Wait()
	return sent
}

// damage sends requests that are damaged at random, for as long as it is told.
func (c *campaign) damage(t *testing.T, long time.Duration) int {
	deadline := time.Now().Add(long)
	var sent atomic.Int64
	var group sync.WaitGroup
	for i := range attackers {
		random := rand.New(rand.NewPCG(c.seed, uint64(1+i)))
		group.Go(func() {
			attack(t, c.addr, func() []byte {
				if time.Now().After(deadline) {
					return nil
				}
				sent.Add(1)
				return damagedFrame(random)
			})
		})
	}
	group.Wait()
	return int(sent.Load())
}

// attack sends what next gives, until that is nil, and takes what comes back.
func attack(t *testing.T, addr string, next func() []byte) {
	var c net.Conn
	for frame := next(); frame != nil; frame = next() {
		if c == nil {
			var err error
			if c, err = net.Dial("tcp", addr); err != nil {
				t.Errorf("the broker accepts no connections: %v", err)
				return
			}
		}
		if !survives(c, frame) {
			_ = c.Close()
			c = nil
		}
	}
	if c != nil {
		_ = c.Close()
	}
}

// survives tells whether a connection can be used further after a frame: it was answered, whole.
func survives(c net.Conn, frame []byte) bool {
	if err := c.SetDeadline(time.Now().Add(attackWait)); err != nil {
		return false
	}
	if _, err := c.Write(frame); err != nil {
		return false
	}
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return false
	}
	_, err := io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint32(size[:])))
	return err == nil
}

// damagedFrame is a frame of any request, damaged in some way.
func damagedFrame(random *rand.Rand) []byte {
	table := api.Table()
	e := &table[random.IntN(len(table))]
	version := e.Min + int16(random.IntN(int(e.Max-e.Min)+1))
	body := requestBody(random, e, version)
	switch random.IntN(100) {
	case 0: // lengths that are blown up, with room for what they claim
		body = append(blowUp(random, body), make([]byte, 1<<random.IntN(22))...)
	case 1, 2: // the frame's own size, or its header
		frame := apitest.Frame(e.Key, version, 1, body)
		flip(random, frame[:min(len(frame), 14)])
		return frame
	default:
		for range 1 + random.IntN(3) {
			if random.IntN(4) == 0 {
				body = blowUp(random, body)
			} else {
				flip(random, body)
			}
		}
	}
	return apitest.Frame(e.Key, version, 1, body)
}

func flip(random *rand.Rand, b []byte) {
	if len(b) > 0 {
		b[random.IntN(len(b))] ^= 1 << random.IntN(8)
	}
}

// blowUp puts a length that can't be in place of some bytes.
func blowUp(random *rand.Rand, body []byte) []byte {
	lengths := [][]byte{
		{0x7f, 0xff, 0xff, 0xff}, {0xff, 0xff, 0xff, 0xfe}, {0x80, 0, 0, 0}, {0, 0x0f, 0x42, 0x40}, // int32
		{0x7f, 0xff}, {0x80, 0}, // int16
		{0xff, 0xff, 0xff, 0xff, 0x0f}, {0x80, 0x80, 0x80, 0x80, 0x08}, {0xc1, 0x84, 0x3d}, // compact
		{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
	}
	length := lengths[random.IntN(len(lengths))]
	at := random.IntN(len(body) + 1)
	end := min(len(body), at+random.IntN(len(length)+1))
	return slices.Concat(body[:at], length, body[end:])
}

// requestBody is a request as a client might send it, about things that are there and things that are not.
func requestBody(random *rand.Rand, e *api.Entry, version int16) []byte {
	texts := []string{"", attackedTopic, attackedTopic, "group", "group", "1", "retention.ms", "cleanup.policy", "consumer", "range", "a/../b"}
	f := apitest.Filler{
		Random: random,
		Text:   func() string { return texts[random.IntN(len(texts))] },
		Bytes: func() []byte {
			if random.IntN(4) == 0 {
				return someBytes(random)
			}
			batches := soundBatches()
			if b := batches[random.IntN(len(batches))]; len(b) < 64<<10 || random.IntN(20) == 0 {
				return b
			}
			return batches[0]
		},
	}
	request := f.Request(e, version)
	switch r := request.(type) { // what leaves something behind for good would make the broker grow by right
	case *kmsg.CreateTopicsRequest:
		r.ValidateOnly = true
	case *kmsg.CreatePartitionsRequest:
		r.ValidateOnly = true
	case *kmsg.DeleteTopicsRequest:
		r.TopicNames = []string{"none"}
		r.Topics = nil
	case *kmsg.FetchRequest:
		r.MaxBytes = 1 << 20
	}
	return request.AppendTo(nil)
}

func someBytes(random *rand.Rand) []byte {
	b := make([]byte, random.IntN(8))
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	return b
}

// soundBatches are batches of every codec, some of a producer with an id, some that unfold to much more than they are.
var soundBatches = sync.OnceValue(func() (batches [][]byte) {
	for codec := record.None; codec <= record.Zstd; codec++ {
		for _, size := range []int{10, 100, 1 << 20} {
			w := record.Builder{Compression: record.Compression{Codec: codec}}
			if size == 100 {
				w.Producer = &record.Producer{ID: 7}
			}
			for i := range int64(3) {
				w.Append(time.Now().UnixMilli()+i, []byte("key"), make([]byte, size))
			}
			b, err := w.Build()
			if err != nil {
				panic(err)
			}
			batches = append(batches, b)
		}
	}
	return batches
})

// beside is a client that does nothing wrong.
type beside struct {
	cancel  context.CancelFunc
	done    chan struct{}
	rounds  int
	longest time.Duration
}

// startBeside produces and fetches in rounds until end.
func startBeside(t *testing.T, r *rig) *beside {
	ctx, cancel := context.WithCancel(context.Background())
	b := &beside{cancel: cancel, done: make(chan struct{})}
	c := r.client(kgo.DefaultProduceTopic("beside"), kgo.ConsumeTopics("beside"), kgo.ProducerLinger(0))
	go func() {
		defer close(b.done)
		for ctx.Err() == nil {
			began := time.Now()
			err := c.ProduceSync(ctx, kgo.StringRecord("round")).FirstErr()
			if err == nil {
				err = c.PollFetches(ctx).Err()
			}
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("beside the malformed requests: %v", err)
				return
			}
			b.rounds++
			b.longest = max(b.longest, time.Since(began))
		}
	}()
	return b
}

func (b *beside) end() (rounds int, longest time.Duration) {
	b.cancel()
	<-b.done
	return b.rounds, b.longest
}

// watchHeap samples the heap until its result is called, which is the largest size.
func watchHeap() func() int64 {
	stop, done := make(chan struct{}), make(chan int64)
	go func() {
		var most int64
		for tick := time.NewTicker(50 * time.Millisecond); ; {
			select {
			case <-tick.C:
				var stats runtime.MemStats
				runtime.ReadMemStats(&stats)
				most = max(most, int64(stats.HeapAlloc))
			case <-stop:
				tick.Stop()
				done <- most
				return
			}
		}
	}()
	return func() int64 {
		close(stop)
		return <-done
	}
}

// heapInUse is what is reachable.
func heapInUse() int64 {
	runtime.GC()
	runtime.GC() // what pools held
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// eventually waits for what is about to be so.
func eventually(t testing.TB, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !so(); {
		if time.Now().After(deadline) {
			t.Fatalf("it does not come to pass that %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}
