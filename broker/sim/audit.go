package sim

import (
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/fsck"
)

// audit reads all that the broker holds, through its API and between two moments, and holds it against the ledger. It runs after
// each restart before clients come back, so that what it finds is what the run before has left.
type audit struct {
	c      *cluster
	ended  ending
	notYet string // why it has to be tried again; empty: it was done

	records int
}

func (a *audit) run() {
	c := a.c
	c.ledger.chain.check()
	if c.failure != nil || !a.ready() {
		return
	}
	partitions := 0
	for _, t := range c.ledger.topics {
		now := c.describe(t.name)
		if t.doubt && (now == nil || now.id != t.id) {
			continue // the change in doubt is its deletion
		}
		a.checkTopic(t, now)
		for _, p := range t.partitions {
			if c.failure != nil {
				return
			}
			a.checkPartition(p, now.epochs[p.index])
			partitions++
		}
	}
	a.checkGroups()
	a.checkBucket(fsck.Aux)
	if c.failure != nil {
		return
	}
	c.stats.Audits++
	c.trace.add("audit", "after %s: %d partitions, %d records, chain to %d", a.ended, partitions, a.records, c.ledger.chain.tail.Number)
}

// ready tells whether every coordinator has loaded what it needs and every log is open.
func (a *audit) ready() bool {
	for _, g := range a.c.ledger.groups {
		if _, code := a.offsets(g); code != wire.None {
			a.notYet = fmt.Sprintf("offsets of %s: %s", g.name, code)
			return false
		}
	}
	for _, t := range a.c.ledger.topics {
		if now := a.c.describe(t.name); t.doubt && (now == nil || now.id != t.id) {
			continue
		}
		for _, p := range t.partitions {
			if _, code := a.listOffset(p, latestOffset); code != wire.None {
				a.notYet = fmt.Sprintf("end of %s: %s", p, code)
				return false
			}
			if !a.coldReady(p) {
				return false
			}
		}
	}
	return true
}

func (a *audit) checkTopic(t *topic, now *described) {
	switch {
	case now == nil:
		a.c.fail("topic %s is gone", t.name)
	case now.id != t.id:
		a.c.fail("topic %s has another id", t.name)
	case t.doubt:
	case now.partitions != len(t.partitions):
		a.c.fail("topic %s has %d partitions, not %d", t.name, now.partitions, len(t.partitions))
	case fmt.Sprint(now.configs) != fmt.Sprint(t.configs):
		a.c.fail("topic %s has settings %v, not %v", t.name, now.configs, t.configs)
	}
}

// The timestamps of ListOffsets that mean something else.
const (
	latestOffset   = -1
	earliestOffset = -2
	maxTimestamp   = -3
)

func (a *audit) listOffset(p *partition, timestamp int64) (kmsg.ListOffsetsResponseTopicPartition, wire.Code) {
	request := kmsg.NewPtrListOffsetsRequest()
	request.SetVersion(7)
	row, part := kmsg.NewListOffsetsRequestTopic(), kmsg.NewListOffsetsRequestTopicPartition()
	row.Topic, part.Partition, part.Timestamp = p.topic.name, p.index, timestamp
	row.Partitions = append(row.Partitions, part)
	request.Topics = append(request.Topics, row)
	answer, answered := a.c.node.tryAsk(request)
	if !answered {
		return kmsg.ListOffsetsResponseTopicPartition{}, wire.RequestTimedOut // it waits for the manifest
	}
	response, ok := answer.(*kmsg.ListOffsetsResponse)
	if !ok {
		return kmsg.ListOffsetsResponseTopicPartition{}, wire.UnknownServerError
	}
	got := response.Topics[0].Partitions[0]
	return got, code(got.ErrorCode)
}

// offset is listOffset where there has to be an answer.
func (a *audit) offset(p *partition, timestamp int64) kmsg.ListOffsetsResponseTopicPartition {
	got, code := a.listOffset(p, timestamp)
	if code != wire.None {
		a.c.node.giveUpFailingDisk()
		a.c.fail("offset of %s for time %d: %s", p, timestamp, code)
	}
	return got
}

// checkPartition reads a log from its beginning to its end.
func (a *audit) checkPartition(p *partition, epoch int32) {
	c := a.c
	start, end := a.offset(p, earliestOffset).Offset, a.offset(p, latestOffset).Offset
	fresh := a.ended != cleanly || c.node.state == auditing
	switch {
	case c.failure != nil:
		return
	case fresh && epoch <= p.epoch:
		c.fail("leader epoch of %s is %d, and was %d before the restart", p, epoch, p.epoch)
	case start > end:
		c.fail("%s begins at %d and ends at %d", p, start, end)
	}
	p.epoch = max(p.epoch, epoch)
	a.checkStart(p, start, end)
	switch {
	case a.ended == wiped:
		a.checkRecovered(p, start, end)
	case a.ended.lossy():
		p.lose(end)
	}
	if end < p.watermark {
		c.fail("%s ends at %d, and its high watermark was %d", p, end, p.watermark)
	}
	last := int32(-1)
	for next := p.skip(start); next < end && c.failure == nil; next = p.skip(next) {
		after, err := p.observe(a.fetch(p, next), next, end)
		if err == nil && after == next {
			err = fmt.Errorf("there is nothing")
		}
		if err != nil {
			c.fail("%s@%d, of %d to %d: %v", p, next, start, end, err)
			return
		}
		for ; next < after; next++ {
			if p.slots[next].lost {
				continue
			}
			if s := &p.slots[next]; s.epoch < last || s.epoch > epoch {
				c.fail("%s@%d has leader epoch %d, after %d; now it is %d", p, next, s.epoch, last, epoch)
				return
			}
			last = p.slots[next].epoch
			a.records++
		}
	}
	if c.failure == nil {
		a.checkEnd(p, start, end)
		a.checkGone(p, start)
		p.settle(end)
		a.checkTimes(p, start, end)
		a.checkEpochs(p, start, end)
		a.checkMiddle(p, start, end)
	}
}

// checkEnd finds records that were acknowledged and are missing at the end; inside they would have shown as others.
func (a *audit) checkEnd(p *partition, start, end int64) {
	for offset := max(start, end); offset < p.end(); offset++ {
		if p.slots[offset].message != nil {
			a.c.fail("%s ends at %d: %s@%d is gone", p, end, p.slots[offset].message.name, offset)
			return
		}
	}
}

// checkStart looks whether deleted records have come back.
func (a *audit) checkStart(p *partition, start, end int64) {
	if start < p.start && !a.ended.lossy() && a.ended != wiped || start < min(p.cut, end) {
		a.c.fail("%s begins at %d, and began at %d before; records below %d were deleted", p, start, p.start, p.cut)
		return
	}
	p.start = start
}

// checkGone looks whether what lies before the log's beginning was allowed to go, by what there is now: retention by size counts
// only what no power loss can take. It goes from the beginning backwards: what lay right before it was the last to go, and what lies
// behind a record may have gone after it, for another reason.
func (a *audit) checkGone(p *partition, start int64) {
	left := int64(0)
	for offset := start; offset < p.end(); offset++ {
		left += int64(p.slots[offset].bytes)
	}
	for offset := min(start, p.end()) - 1; offset >= max(p.deleted, p.judged); offset-- {
		s := &p.slots[offset]
		if s.message != nil && !a.expired(p, s, left) {
			a.c.fail("%s begins at %d: %s@%d is gone, though nothing allows it", p, start, s.message.name, offset)
			return
		}
		left += int64(s.bytes)
	}
	p.judged = max(p.judged, start)
}

// expired tells whether retention may have taken a record, with so many bytes behind it.
func (a *audit) expired(p *partition, s *slot, left int64) bool {
	if bytes, ok := number(p.topic.configs["retention.bytes"]); ok && left >= bytes {
		return true
	}
	if ms, ok := number(p.topic.configs["retention.ms"]); ok {
		return s.time == noTime || a.c.clock.now.UnixMilli()-s.time > ms
	}
	return false
}

func number(text string) (int64, bool) {
	var n int64
	_, err := fmt.Sscan(text, &n)
	return n, err == nil
}

// tryFetch reads from an offset on, about as much as it is in the mood for.
func (a *audit) tryFetch(p *partition, offset int64) ([]byte, wire.Code) {
	request := kmsg.NewPtrFetchRequest()
	request.SetVersion([]int16{4, 6, 11, 12, 13, 17}[a.c.node.random.IntN(6)])
	request.MaxBytes = int32(1 + a.c.node.random.IntN(100_000))
	request.SessionEpoch = -1
	request.Topics = append(request.Topics, fetchTopic(p, offset, request.MaxBytes))
	answer, answered := a.c.node.tryAsk(request)
	if !answered {
		return nil, wire.RequestTimedOut // it waits for the manifest
	}
	response, ok := answer.(*kmsg.FetchResponse)
	if !ok {
		return nil, wire.UnknownServerError
	}
	return response.Topics[0].Partitions[0].RecordBatches, code(response.ErrorCode | response.Topics[0].Partitions[0].ErrorCode)
}

// fetch is tryFetch where there has to be an answer.
func (a *audit) fetch(p *partition, offset int64) []byte {
	records, result := a.tryFetch(p, offset)
	if result != wire.None {
		a.c.node.giveUpFailingDisk()
		a.c.fail("fetch of %s@%d: %s", p, offset, result)
		return nil
	}
	return records
}

// checkMiddle reads at some offsets, which the indexes have to find.
func (a *audit) checkMiddle(p *partition, start, end int64) {
	for range min(end-start, 3) {
		offset := start + a.c.node.random.Int64N(end-start)
		if _, err := p.observe(a.fetch(p, offset), offset, end); err != nil {
			a.c.fail("%s@%d, of %d to %d: %v", p, offset, start, end, err)
		}
	}
}

// checkTimes compares what ListOffsets says of times with a look at every record.
func (a *audit) checkTimes(p *partition, start, end int64) {
	start = p.skip(start)
	if end <= start {
		return
	}
	for range 4 {
		target := p.slots[p.before(start+a.c.node.random.Int64N(end-start))].time + int64(a.c.node.random.IntN(5)-2)
		want := int64(-1)
		for offset := start; offset < end; offset++ {
			if p.slots[offset].time >= target {
				want = offset
				break
			}
		}
		if got := a.offset(p, target); got.Offset != want {
			a.c.fail("%s: time %d leads to offset %d, not %d", p, target, got.Offset, want)
		}
	}
	latest := start
	for offset := start; offset < end; offset++ {
		if p.slots[offset].time > p.slots[latest].time {
			latest = offset
		}
	}
	if got := a.offset(p, maxTimestamp); got.Timestamp != p.slots[latest].time {
		a.c.fail("%s: the largest time is %d at %d, not %d at %d", p, got.Timestamp, got.Offset, p.slots[latest].time, latest)
	}
}

// checkEpochs compares where leader epochs end with what the records say.
func (a *audit) checkEpochs(p *partition, start, end int64) {
	for offset := start; offset < end; offset++ {
		epoch := p.slots[offset].epoch
		if offset > start && p.slots[offset-1].epoch == epoch || p.slots[offset].lost {
			continue
		}
		want := offset
		for want < end && p.slots[want].epoch == epoch {
			want++
		}
		request := kmsg.NewPtrOffsetForLeaderEpochRequest()
		request.SetVersion(4)
		row, part := kmsg.NewOffsetForLeaderEpochRequestTopic(), kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		row.Topic, part.Partition, part.LeaderEpoch, part.CurrentLeaderEpoch = p.topic.name, p.index, epoch, -1
		row.Partitions = append(row.Partitions, part)
		request.Topics = append(request.Topics, row)
		response, ok := a.c.node.ask(request).(*kmsg.OffsetForLeaderEpochResponse)
		if !ok {
			return
		}
		if got := response.Topics[0].Partitions[0]; got.ErrorCode != 0 || got.EndOffset != want && got.EndOffset != p.skip(want) || got.LeaderEpoch != epoch {
			a.c.fail("%s: leader epoch %d ends at %d (epoch %d, %s), not at %d", p, epoch, got.EndOffset, got.LeaderEpoch, code(got.ErrorCode), want)
		}
	}
}

// leftovers names a directory that should not be there any more: of a topic that is gone, or set aside as unexplained. The latter
// is all right after a power loss, which may take the file that says whose the others are, and where a log directory had failed
// when the topic was deleted.
func (a *audit) leftovers() string {
	for _, dir := range a.c.plan.logDirs() {
		names, err := a.c.node.disk.mem.List(dir)
		if err != nil {
			return err.Error()
		}
		for _, name := range names {
			info, err := a.c.node.disk.mem.Stat(dir + "/" + name)
			stray := (a.c.node.boot > 0 || a.c.plan.failingDisk) && strings.HasSuffix(name, "-stray")
			known := len(a.c.ledger.named(name)) > 0 || strings.HasPrefix(name, wire.ConsumerOffsetsTopic+"-")
			if err == nil && info.IsDir && !stray && !known {
				return fmt.Sprintf("%s/%s is of no topic that is there", dir, name)
			}
		}
	}
	return ""
}

// offsets are a group's committed offsets.
func (a *audit) offsets(g *groupLedger) ([]found, wire.Code) {
	if len(g.commits) == 0 {
		return nil, wire.None
	}
	request := kmsg.NewPtrOffsetFetchRequest()
	request.SetVersion(7)
	request.Group = g.name
	request.Topics = nil // all
	response, ok := a.c.node.ask(request).(*kmsg.OffsetFetchResponse)
	if !ok {
		return nil, wire.UnknownServerError
	}
	var rows []found
	for _, t := range response.Topics {
		for _, part := range t.Partitions {
			of := a.c.ledger.named(fmt.Sprintf("%s-%d", t.Topic, part.Partition))
			if len(of) == 0 || part.Metadata == nil {
				a.c.fail("group %s has an offset of %s-%d, which nobody committed", g.name, t.Topic, part.Partition)
				continue
			}
			rows = append(rows, found{of: of[0], offset: part.Offset, note: *part.Metadata})
		}
	}
	return rows, code(response.ErrorCode)
}

func (a *audit) checkGroups() {
	for _, g := range a.c.ledger.groups {
		rows, _ := a.offsets(g)
		if err := g.check(rows, a.ended.lossy() || a.ended == wiped && a.c.node.gaveUpOffsets()); err != nil {
			a.c.fail("%v", err)
		}
	}
}
