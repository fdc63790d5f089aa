package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// consumer follows some partitions from their beginning or from the middle, with a fetch session where its version has them, and
// shows the ledger what it reads.
type consumer struct {
	client
	highest   int16 // version of Fetch
	positions []*position
	session   int32
	epoch     int32 // of the session
	changed   map[*position]bool
	out       bool
}

// position is where a consumer is in a partition.
type position struct {
	of        *partition
	next      int64
	watermark int64 // as this connection was told last
	forgotten bool  // to be told to the session
	astray    bool  // next is out of range: the log's start is to be asked for
}

func newConsumer(c *cluster, i int) *consumer {
	k := &consumer{}
	k.client = newClient(c, fmt.Sprintf("consumer-%d", i), k.work)
	k.highest = int16(4 + k.random.IntN(15))
	k.soon(time.Second)
	return k
}

func (k *consumer) waitsFor() string {
	if k.out {
		return k.name + " waits for a fetch"
	}
	for _, p := range k.positions {
		if !p.of.topic.gone && p.of.skip(p.next) < p.of.watermark {
			return fmt.Sprintf("%s has read %s to %d of %d", k.name, p.of, p.next, p.of.watermark)
		}
	}
	return ""
}

func (k *consumer) work() {
	if k.out {
		return
	}
	if k.c.healed && k.waitsFor() == "" {
		k.soon(200 * time.Millisecond) // others may still write
		return
	}
	fresh := k.x == nil || k.x.closed
	if !k.connected() {
		k.soon(200 * time.Millisecond)
		return
	}
	if fresh {
		k.restart()
		for _, p := range k.positions {
			p.watermark = -1
		}
	}
	k.choose()
	for _, p := range k.positions {
		if p.astray {
			k.findStart(p)
			return
		}
	}
	k.fetch()
}

// findStart goes on where the log begins now.
func (k *consumer) findStart(p *position) {
	request := kmsg.NewPtrListOffsetsRequest()
	request.SetVersion(k.version(kmsg.ListOffsets, 1, anyVersion))
	row, part := kmsg.NewListOffsetsRequestTopic(), kmsg.NewListOffsetsRequestTopicPartition()
	row.Topic, part.Partition, part.Timestamp = p.of.topic.name, p.of.index, earliestOffset
	row.Partitions = append(row.Partitions, part)
	request.Topics = append(request.Topics, row)
	k.out = true
	k.call(request, "start of "+p.of.String(), func(response kmsg.Response) {
		k.out, p.astray = false, false
		if r, ok := response.(*kmsg.ListOffsetsResponse); ok {
			got := r.Topics[0].Partitions[0]
			k.c.trace.add(k.name, "< ListOffsets: %s, %d", code(got.ErrorCode), got.Offset)
			if got.ErrorCode == 0 {
				p.next, k.changed[p] = got.Offset, false
			}
		}
		k.soon(20 * time.Millisecond)
	})
}

// restart gives the session up.
func (k *consumer) restart() { k.session, k.epoch, k.changed = 0, 0, map[*position]bool{} }

// choose changes what is followed, now and then.
func (k *consumer) choose() {
	for i := 0; i < len(k.positions); i++ {
		if p := k.positions[i]; p.of.topic.gone || !k.c.healed && k.random.IntN(50) == 0 {
			p.forgotten = true
		}
	}
	if k.c.healed || len(k.positions) > 3 || len(k.positions) > 0 && k.random.IntN(10) > 0 {
		return
	}
	of := k.c.ledger.draw(k.random)
	if of == nil {
		return
	}
	for _, p := range k.positions {
		if p.of == of {
			return
		}
	}
	p := &position{of: of, watermark: -1}
	if k.random.IntN(2) == 0 {
		p.next = k.random.Int64N(of.end() + 1)
	}
	k.positions = append(k.positions, p)
}

func (k *consumer) fetch() {
	request := kmsg.NewPtrFetchRequest()
	request.SetVersion(k.version(kmsg.Fetch, min(k.highest, 4), k.highest))
	if k.session != 0 { // sessions keep names or ids, not both
		request.SetVersion(k.highest)
	}
	request.MaxWaitMillis = int32(k.random.IntN(600))
	request.MinBytes = int32(k.random.IntN(2000))
	request.MaxBytes = int32(1 + k.random.IntN(20_000))
	request.SessionID, request.SessionEpoch = k.session, k.epoch
	if request.GetVersion() < 7 || request.GetVersion() != k.highest {
		k.restart()
		request.SessionID, request.SessionEpoch = 0, -1
	}
	var note strings.Builder
	fmt.Fprintf(&note, "session %d/%d", request.SessionID, request.SessionEpoch)
	incremental := request.SessionEpoch > 0
	kept := k.positions[:0]
	for _, p := range k.positions {
		if p.forgotten {
			if incremental {
				f := kmsg.NewFetchRequestForgottenTopic()
				f.Topic, f.TopicID, f.Partitions = p.of.topic.name, p.of.topic.id, []int32{p.of.index}
				request.ForgottenTopics = append(request.ForgottenTopics, f)
				fmt.Fprintf(&note, " -%s", p.of)
			}
			continue
		}
		kept = append(kept, p)
		if incremental && k.changed[p] {
			continue
		}
		k.changed[p] = true
		request.Topics = append(request.Topics, fetchTopic(p.of, p.next, int32(1+k.random.IntN(10_000))))
		fmt.Fprintf(&note, " %s@%d", p.of, p.next)
	}
	k.positions = kept
	k.out = true
	due := k.c.clock.now.Add(time.Duration(request.MaxWaitMillis)*time.Millisecond + k.c.plan.tier.fetchSlack())
	k.call(request, note.String(), func(response kmsg.Response) {
		k.out = false
		if response != nil && k.c.clock.now.After(due) {
			k.c.fail("%s: a fetch that may wait %d ms is answered at %s, %s too late", k.name, request.MaxWaitMillis, k.c.clock.now.Sub(epoch), k.c.clock.now.Sub(due))
		}
		if r, ok := response.(*kmsg.FetchResponse); ok {
			k.take(request, r)
		}
		k.soon(20 * time.Millisecond)
	})
}

// fetchSlack is how late the answer to a fetch may be: both ways over the network, and the wake-up.
const fetchSlack = 20 * time.Millisecond

// fetchTopic asks for one partition.
func fetchTopic(of *partition, offset int64, bytesMax int32) kmsg.FetchRequestTopic {
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic, topic.TopicID = of.topic.name, of.topic.id
	row := kmsg.NewFetchRequestTopicPartition()
	row.Partition, row.FetchOffset, row.PartitionMaxBytes = of.index, offset, bytesMax
	row.CurrentLeaderEpoch, row.LastFetchedEpoch = -1, -1
	topic.Partitions = append(topic.Partitions, row)
	return topic
}

// take looks at an answer.
func (k *consumer) take(request *kmsg.FetchRequest, r *kmsg.FetchResponse) {
	if r.ErrorCode != 0 {
		k.c.trace.add(k.name, "< Fetch: %s", code(r.ErrorCode))
		k.restart()
		return
	}
	if request.SessionEpoch >= 0 {
		k.session = r.SessionID
		if k.epoch++; k.session == 0 {
			k.restart()
		}
	}
	for _, t := range r.Topics {
		for i := range t.Partitions {
			row := &t.Partitions[i]
			p := k.at(t, row.Partition)
			if p == nil {
				k.c.fail("%s gets %s%x-%d, which it did not ask for", k.name, t.Topic, t.TopicID[:4], row.Partition)
				return
			}
			k.takePartition(p, row)
		}
	}
}

// at finds the position that a row of an answer is for.
func (k *consumer) at(t kmsg.FetchResponseTopic, index int32) *position {
	for _, p := range k.positions {
		if (p.of.topic.name == t.Topic || t.Topic == "" && p.of.topic.id == t.TopicID) && p.of.index == index {
			return p
		}
	}
	return nil
}

func (k *consumer) takePartition(p *position, row *kmsg.FetchResponseTopicPartition) {
	if p.of.topic.gone { // another of that name may be there already
		return
	}
	if row.ErrorCode != 0 {
		k.c.trace.add(k.name, "< Fetch %s@%d: %s", p.of, p.next, code(row.ErrorCode))
		p.astray = code(row.ErrorCode) == wire.OffsetOutOfRange
		return
	}
	if row.HighWatermark < p.watermark {
		k.c.fail("%s: high watermark of %s goes back from %d to %d", k.name, p.of, p.watermark, row.HighWatermark)
	}
	p.watermark = row.HighWatermark
	next, err := p.of.observe(row.RecordBatches, p.next, row.HighWatermark)
	if err != nil {
		k.c.fail("%s reads %s@%d: %v", k.name, p.of, p.next, err)
		return
	}
	if next > p.next {
		k.c.trace.add(k.name, "< Fetch %s: %d to %d of %d", p.of, p.next, next, row.HighWatermark)
		k.c.stats.Fetched += int(next - p.next)
		p.next = next
		k.changed[p] = false
	}
}

// observe shows the ledger what was read from an offset on. It gives the offset that follows.
func (p *partition) observe(bytes []byte, from, watermark int64) (next int64, err error) {
	next = from
	p.watermark = max(p.watermark, watermark)
	for first := true; len(bytes) > 0; first = false {
		size, err := record.SizeOf(bytes)
		if err != nil || size > len(bytes) {
			if first {
				return next, fmt.Errorf("the answer has no whole batch: %w", err)
			}
			break // a batch that was cut off at the limit of the request
		}
		b := record.Batch(bytes[:size])
		bytes = bytes[size:]
		if err := b.Check(); err != nil {
			return next, fmt.Errorf("batch at %d: %w", b.BaseOffset(), err)
		}
		base, last := int64(b.BaseOffset()), int64(b.LastOffset())
		if first && (base > p.skip(from) || last < from) || !first && base != p.skip(next) {
			return next, fmt.Errorf("the batch of %d to %d follows %d", base, last, next)
		}
		if last >= watermark {
			return next, fmt.Errorf("the batch of %d to %d is above the high watermark %d", base, last, watermark)
		}
		if err := p.observeBatch(b); err != nil {
			return next, err
		}
		next = last + 1
	}
	return next, nil
}

// recordBytesMax is far above what producers make.
const recordBytesMax = 1 << 20

func (p *partition) observeBatch(b record.Batch) error {
	offset := int64(b.BaseOffset())
	for r, err := range record.Records(b, recordBytesMax) {
		if err != nil {
			return fmt.Errorf("record at %d: %w", offset, err)
		}
		if int64(r.Offset) != offset {
			return fmt.Errorf("record at %d is of offset %d", offset, r.Offset)
		}
		m := p.sent[string(r.Key)]
		if m == nil {
			return fmt.Errorf("record %q at %d was never sent here", r.Key, offset)
		}
		if string(r.Value) != string(m.value()) {
			return fmt.Errorf("record %s at %d has another value than was sent", m.name, offset)
		}
		s := p.place(offset, m)
		if s == nil {
			return nil // told already
		}
		if err := s.see(int32(b.LeaderEpoch()), r.Timestamp); err != nil {
			return fmt.Errorf("record %s at %d: %w", m.name, offset, err)
		}
		if offset == int64(b.LastOffset()) {
			s.bytes = len(b)
		}
		if p.topic.configs["message.timestamp.type"] == "" && r.Timestamp != m.timestamp {
			return fmt.Errorf("record %s at %d has time %d, not %d", m.name, offset, r.Timestamp, m.timestamp)
		}
		offset++
	}
	if offset != int64(b.NextOffset()) {
		return fmt.Errorf("the batch of %d to %d ends with the record of %d", b.BaseOffset(), b.LastOffset(), offset-1)
	}
	p.epoch = max(p.epoch, int32(b.LeaderEpoch()))
	return nil
}

// see notes epoch and time of a record, which never change.
func (s *slot) see(epoch int32, time int64) error {
	if s.epoch >= 0 && s.epoch != epoch {
		return fmt.Errorf("its leader epoch was %d and is %d", s.epoch, epoch)
	}
	if s.time != noTime && s.time != time {
		return fmt.Errorf("its time was %d and is %d", s.time, time)
	}
	s.epoch, s.time = epoch, time
	return nil
}
