package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// producer writes batches of records that the ledger can tell apart. It sends what it gets no good answer to again, or, with
// acks=0, never looks back.
type producer struct {
	client
	acks       int16
	idempotent bool
	codec      record.Codec
	window     int // requests that may be out

	id      int64 // of an idempotent producer; -1: it has to ask for one
	epoch   int16
	asking  bool
	batches int // made so far
	out     int // requests
	lanes   []*lane
}

// lane is what a producer has to say to one partition, in order.
type lane struct {
	to       *partition
	next     int32 // sequence of the next batch
	queue    []*batch
	retryAt  time.Time // after an error
	known    bool      // the broker has taken a batch since the last trouble; before, one goes at a time, as in Kafka's client
	lossesAt int       // power losses of the partition when the producer got its id
}

// batch is some records on their way.
type batch struct {
	name     string
	records  []*message
	sequence int32
	out      bool
	sends    int
}

func newProducer(c *cluster, i int) *producer {
	p := &producer{id: -1}
	p.client = newClient(c, fmt.Sprintf("producer-%d", i), p.work)
	p.strays = true
	p.acks = []int16{-1, -1, -1, 1, 0}[p.random.IntN(5)]
	if p.idempotent = p.random.IntN(3) > 0; p.idempotent {
		p.acks = -1
	}
	p.codec = record.Codec(p.random.IntN(5))
	p.window = 1 + p.random.IntN(5)
	p.soon(100 * time.Millisecond)
	return p
}

func (p *producer) waitsFor() string {
	for _, l := range p.lanes {
		if len(l.queue) > 0 {
			return fmt.Sprintf("%s waits for %s of %s", p.name, l.queue[0].name, l.to)
		}
	}
	return ""
}

func (p *producer) work() {
	if !p.connected() {
		p.soon(100 * time.Millisecond)
		return
	}
	if p.idempotent && p.id < 0 {
		p.askForID()
		return
	}
	if !p.c.healed {
		p.write()
	}
	for p.out < p.window && p.send() {
	}
	p.soon(20 * time.Millisecond)
}

func (p *producer) askForID() {
	if p.asking {
		return
	}
	p.asking = true
	request := kmsg.NewPtrInitProducerIDRequest()
	request.SetVersion(p.version(kmsg.InitProducerID, 0, anyVersion))
	p.call(request, "", func(response kmsg.Response) {
		p.asking = false
		if r, ok := response.(*kmsg.InitProducerIDResponse); ok {
			p.c.trace.add(p.name, "< InitProducerId: %d/%d %s", r.ProducerID, r.ProducerEpoch, code(r.ErrorCode))
			if r.ErrorCode == 0 {
				p.id, p.epoch = r.ProducerID, r.ProducerEpoch
				p.c.ledger.handOut(r.ProducerID, p.name)
			}
		}
		p.soon(50 * time.Millisecond)
	})
}

// write makes a batch for some partition.
func (p *producer) write() {
	to := p.c.ledger.draw(p.random)
	if to == nil {
		return
	}
	l := p.laneTo(to)
	if len(l.queue) >= p.window {
		return
	}
	p.batches++
	b := &batch{name: fmt.Sprintf("%s/%d", p.name, p.batches), sequence: l.next}
	size := []int{10, 100, 1000, 4000}[p.random.IntN(4)]
	for i := range 1 + p.random.IntN(6) {
		at := p.c.clock.now.Add(time.Duration(p.random.IntN(2000)-1500) * time.Millisecond)
		b.records = append(b.records, newMessage(fmt.Sprintf("%s/%d", b.name, i), 1+p.random.IntN(size), at, p.idempotent))
	}
	l.next += int32(len(b.records))
	l.queue = append(l.queue, b)
}

func (p *producer) laneTo(to *partition) *lane {
	for _, l := range p.lanes {
		if l.to == to {
			return l
		}
	}
	l := &lane{to: to, lossesAt: to.losses}
	p.lanes = append(p.lanes, l)
	return l
}

// send sends one request with a batch each of some partitions; false if there is nothing to send.
func (p *producer) send() bool {
	if !p.connected() {
		return false
	}
	request := kmsg.NewPtrProduceRequest()
	request.Acks, request.TimeoutMillis = p.acks, 10_000
	oldest := int16(3)
	if p.codec == record.Zstd {
		oldest = 7
	}
	var batches []*batch
	var lanes []*lane
	var note strings.Builder
	for _, at := range p.random.Perm(len(p.lanes)) {
		l := p.lanes[at]
		b := l.first()
		if b == nil || p.c.clock.now.Before(l.retryAt) || len(batches) > 0 && p.random.IntN(2) == 0 {
			continue
		}
		if !l.to.topic.lasting {
			oldest = producesByID // by name, a batch for a deleted topic may get into the next one of that name
		}
		b.out = true
		b.sends++
		if b.sends > 1 {
			p.c.stats.Retried++
		}
		for _, m := range b.records {
			l.to.sending(m)
		}
		topic := kmsg.NewProduceRequestTopic()
		topic.Topic, topic.TopicID = l.to.topic.name, l.to.topic.id
		row := kmsg.NewProduceRequestTopicPartition()
		row.Partition, row.Records = l.to.index, p.encode(b)
		topic.Partitions = append(topic.Partitions, row)
		request.Topics = append(request.Topics, topic)
		batches, lanes = append(batches, b), append(lanes, l)
		fmt.Fprintf(&note, " %s→%s", b.name, l.to)
	}
	if len(batches) == 0 {
		return false
	}
	request.SetVersion(p.version(kmsg.Produce, oldest, anyVersion))
	p.out++
	p.call(request, note.String(), func(response kmsg.Response) {
		p.out--
		r, _ := response.(*kmsg.ProduceResponse)
		for i, b := range batches {
			p.answered(lanes[i], b, r)
		}
	})
	return true
}

// retryBackoff is retry.backoff.ms of Kafka's clients.
const retryBackoff = 100 * time.Millisecond

// producesByID is the first version of Produce that names topics by id.
const producesByID = 13

// first is the batch that may go next. A broker that knows nothing of a producer takes any sequence from it: of two batches on
// their way, the second must not come first.
func (l *lane) first() *batch {
	for _, b := range l.queue {
		switch {
		case !b.out:
			return b
		case !l.known:
			return nil
		}
	}
	return nil
}

// encode makes the bytes of a batch, anew for each try: the broker writes into them.
func (p *producer) encode(b *batch) []byte {
	w := record.Builder{Compression: record.Compression{Codec: p.codec}}
	if p.idempotent {
		w.Producer = &record.Producer{ID: wire.ProducerID(p.id), Epoch: wire.ProducerEpoch(p.epoch), Sequence: b.sequence}
	}
	for _, m := range b.records {
		w.Append(m.timestamp, []byte(m.name), m.value())
	}
	bytes, err := w.Build()
	if err != nil {
		panic("sim: batch can't be built: " + err.Error())
	}
	return bytes
}

// answered takes the answer for one batch; nil if there is none.
func (p *producer) answered(l *lane, b *batch, r *kmsg.ProduceResponse) {
	b.out = false
	if p.acks == 0 {
		l.remove(b)
		return
	}
	result := wire.NetworkException
	var base int64
	if r != nil {
		result, base = findProduced(r, l.to)
	}
	p.c.trace.add(p.name, "< Produce: %s %s@%d %s", b.name, l.to, base, result)
	switch {
	case result == wire.None:
		l.to.acknowledged(b.records, base)
		l.remove(b)
		l.known = true
	case result == wire.DuplicateSequenceNumber && p.idempotent:
		l.remove(b) // it is there, and the broker does not know where any more
	case l.to.topic.gone, result == wire.UnknownTopicOrPartition || result == wire.UnknownTopicID:
		l.giveUp()
	case result == wire.OutOfOrderSequenceNumber && len(l.queue) > 0 && l.queue[0] == b:
		// Everything before was acknowledged, and the broker says that it is not there.
		if l.to.losses == l.lossesAt {
			p.c.fail("%s: %s of %s is out of order, though nothing was lost", p.name, b.name, l.to)
		}
		p.startOver()
	case retriable[result]:
		l.known = false
		l.retryAt = p.c.clock.now.Add(retryBackoff)
	default:
		p.c.fail("%s: %s of %s is refused: %s", p.name, b.name, l.to, result)
	}
}

// retriable are the codes after which a batch may be sent again as it is.
var retriable = map[wire.Code]bool{
	wire.NetworkException: true, wire.NotLeaderOrFollower: true, wire.LeaderNotAvailable: true, wire.RequestTimedOut: true,
	wire.KafkaStorageError: true, wire.NotEnoughReplicas: true, wire.NotEnoughReplicasAfterAppend: true,
	wire.OutOfOrderSequenceNumber: true, // a batch before it was not taken
}

// findProduced is the answer for a partition.
func findProduced(r *kmsg.ProduceResponse, to *partition) (wire.Code, int64) {
	for _, t := range r.Topics {
		if t.Topic != to.topic.name && t.TopicID != to.topic.id {
			continue
		}
		for _, row := range t.Partitions {
			if row.Partition == to.index {
				return code(row.ErrorCode), row.BaseOffset
			}
		}
	}
	to.topic.c.fail("answer to a produce to %s does not name it", to)
	return wire.UnknownServerError, 0
}

func (l *lane) remove(b *batch) {
	for i, other := range l.queue {
		if other == b {
			l.queue = append(l.queue[:i:i], l.queue[i+1:]...)
			return
		}
	}
}

// giveUp forgets what was to be written; of a lane whose topic is gone.
func (l *lane) giveUp() { l.queue, l.known = nil, false }

// startOver gives up the producer id with everything that was sent under it and not acknowledged.
func (p *producer) startOver() {
	p.id = -1
	p.lanes = nil
}
