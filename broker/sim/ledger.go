package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/tidemark-io/tidemark/tier/manifest"
)

// ledger is what the clients have sent and been told: the truth that everything else is held against.
type ledger struct {
	c      *cluster
	topics []*topic         // that exist, or may
	ids    map[int64]string // producer ids, and who got them
	groups []*groupLedger
	chain  history
}

func newLedger(c *cluster) *ledger {
	return &ledger{c: c, ids: map[int64]string{}, chain: newHistory(c)}
}

// topic is a topic under one id.
type topic struct {
	c          *cluster
	name       string
	id         [16]byte
	partitions []*partition
	configs    map[string]string // that were set on it
	lasting    bool              // nobody deletes it
	gone       bool
	doubt      bool // a change of it was asked for and not answered yet
}

// draw picks a partition to write to or read from, nil if there is none.
func (l *ledger) draw(random *rand.Rand) *partition {
	if len(l.topics) == 0 {
		return nil
	}
	t := l.topics[random.IntN(len(l.topics))]
	return t.partitions[random.IntN(len(t.partitions))]
}

// add notes a new topic.
func (l *ledger) add(t *topic, partitions int) {
	t.grow(partitions)
	l.topics = append(l.topics, t)
}

func (t *topic) grow(partitions int) {
	for len(t.partitions) < partitions {
		t.partitions = append(t.partitions, newPartition(t, len(t.partitions)))
	}
}

// remove notes that a topic is gone.
func (l *ledger) remove(t *topic) {
	t.gone = true
	l.topics = slices.DeleteFunc(l.topics, func(other *topic) bool { return other == t })
}

func (l *ledger) find(name string) *topic {
	for _, t := range l.topics {
		if t.name == name {
			return t
		}
	}
	return nil
}

// handOut notes who got a producer id.
func (l *ledger) handOut(id int64, to string) {
	if other, ok := l.ids[id]; ok {
		l.c.fail("producer id %d goes to %s and has gone to %s", id, to, other)
	}
	l.ids[id] = to
}

// flushed notes that everything that was acknowledged so far can't be lost any more.
func (l *ledger) flushed() {
	for _, t := range l.topics {
		for _, p := range t.partitions {
			p.durable = p.end()
		}
	}
	for _, g := range l.groups {
		g.flushed()
	}
}

// flushedBefore notes that what was acknowledged before a moment can't be lost any more.
func (l *ledger) flushedBefore(moment time.Time) {
	for _, t := range l.topics {
		for _, p := range t.partitions {
			for offset := p.end() - 1; offset >= p.durable; offset-- {
				if s := &p.slots[offset]; !s.acked.IsZero() && s.acked.Before(moment) {
					p.durable = offset + 1
				}
			}
		}
	}
}

// message is a record that some producer makes.
type message struct {
	name      string
	size      int
	timestamp int64
	once      bool // however often it is sent, it may be appended once

	copies int     // that may be in the log
	at     []int64 // offsets where it is known to be
}

func newMessage(name string, size int, at time.Time, once bool) *message {
	return &message{name: name, size: size, timestamp: at.UnixMilli(), once: once}
}

// value is the content, which can be told from every other.
func (m *message) value() []byte {
	b := make([]byte, m.size)
	state := uint32(2166136261)
	for _, c := range []byte(m.name) {
		state = (state ^ uint32(c)) * 16777619
	}
	for i := range b {
		state = state*1664525 + 1013904223
		b[i] = byte('a' + state>>24%26)
	}
	return b
}

// partition is what is known of a partition's log.
type partition struct {
	topic *topic
	index int32
	slots []slot // by offset
	sent  map[string]*message

	start     int64           // where the log was last seen to begin
	deleted   int64           // the highest offset up to which somebody asked to delete records
	cut       int64           // below it, DeleteRecords said that they are deleted
	judged    int64           // below it, what is gone was allowed to go
	durable   int64           // below it, nothing that was acknowledged can be lost
	watermark int64           // the highest that anybody was told
	epoch     int32           // the highest leader epoch seen
	losses    int             // power losses that took something
	remote    *manifest.State // as it was last seen; nil: never
}

// slot is a record at its offset.
type slot struct {
	message *message  // nil: not known
	acked   time.Time // when the broker said that it is there; zero: never
	epoch   int32     // -1: not known
	time    int64     // noTime: not known
	bytes   int       // of its batch, in the batch's last slot
	lost    bool      // given up by a recovery: nothing is there, nor ever will be
}

const noTime = -1 << 63

func newPartition(t *topic, index int) *partition {
	return &partition{topic: t, index: int32(index), sent: map[string]*message{}, epoch: -1}
}

// String is the directory's name.
func (p *partition) String() string { return fmt.Sprintf("%s-%d", p.topic.name, p.index) }

// end is above the last offset of which something is known.
func (p *partition) end() int64 { return int64(len(p.slots)) }

// sending notes that a message goes out, maybe again.
func (p *partition) sending(m *message) {
	p.sent[m.name] = m
	if m.once {
		m.copies = 1
	} else {
		m.copies++
	}
}

// acknowledged notes that the broker has put messages at base and above.
func (p *partition) acknowledged(messages []*message, base int64) {
	for i, m := range messages {
		if s := p.place(base+int64(i), m); s != nil && s.acked.IsZero() {
			s.acked = p.topic.c.clock.now
			p.topic.c.stats.Produced++
		}
	}
	if p.topic.configs["flush.messages"] == "1" {
		p.durable = max(p.durable, base+int64(len(messages)))
	}
}

// place puts a message at an offset, where it has to stay. nil: it can't be there.
func (p *partition) place(offset int64, m *message) *slot {
	c := p.topic.c
	for p.end() <= offset {
		p.slots = append(p.slots, slot{epoch: -1, time: noTime})
	}
	s := &p.slots[offset]
	switch {
	case s.message == m:
		return s
	case s.lost:
		c.fail("%s@%d was given up, and now holds %s", p, offset, m.name)
		return nil
	case s.message != nil:
		c.fail("%s@%d holds %s, and now %s", p, offset, s.message.name, m.name)
		return nil
	case len(m.at) >= m.copies:
		c.fail("%s@%d: %s is here once more than it was sent; it is at %v already", p, offset, m.name, m.at)
		return nil
	}
	s.message = m
	m.at = append(m.at, offset)
	return s
}

// lose notes that a power loss took everything from end on.
func (p *partition) lose(end int64) {
	if end < p.durable {
		p.topic.c.fail("%s ends at %d after a power loss: everything below %d was flushed", p, end, p.durable)
		return
	}
	p.forget(end, p.end())
	if end < p.end() {
		p.slots = p.slots[:end]
		p.losses++
	}
	p.watermark, p.cut = min(p.watermark, end), min(p.cut, end)
}

// forget notes that the messages of a range are not there any more.
func (p *partition) forget(from, to int64) {
	for offset := from; offset < to; offset++ {
		s := &p.slots[offset]
		if s.message == nil {
			continue
		}
		s.message.at = slices.DeleteFunc(s.message.at, func(at int64) bool { return at == offset })
		s.message.copies--
		p.topic.c.stats.Lost++
	}
}

// giveUp notes that a recovery has lost what was in a range of offsets, which nobody will ever get again.
func (p *partition) giveUp(from, to int64) {
	for p.end() < to {
		p.slots = append(p.slots, slot{epoch: -1, time: noTime})
	}
	p.forget(from, to)
	for offset := from; offset < to; offset++ {
		p.slots[offset] = slot{epoch: -1, time: noTime, lost: true}
	}
	p.losses++
}

// skip is where a read at the offset goes on: behind what was given up.
func (p *partition) skip(offset int64) int64 {
	for offset < p.end() && p.slots[offset].lost {
		offset++
	}
	return offset
}

// settle notes that nothing is on its way any more: what is not in the log, which ends at end, will not come without being sent again. Where
// retention took an offset before anybody saw it, a recovery may bring it back.
func (p *partition) settle(end int64) {
	if p.end() < end {
		return // as below
	}
	for i := range p.slots {
		if p.slots[i].message == nil && !p.slots[i].lost {
			return // it may be any
		}
	}
	for _, m := range p.sent {
		m.copies = len(m.at)
	}
}

// drawLasting picks a partition of a topic that nobody deletes, nil if there is none.
func (l *ledger) drawLasting(random *rand.Rand) *partition {
	if p := l.draw(random); p != nil && p.topic.lasting {
		return p
	}
	return nil
}

// before is the last offset up to the given one that was not given up. There is one.
func (p *partition) before(offset int64) int64 {
	for p.slots[offset].lost {
		offset--
	}
	return offset
}

// named finds partitions by their names, which are separated by spaces.
func (l *ledger) named(names string) []*partition {
	var found []*partition
	for name := range strings.FieldsSeq(names) {
		for _, t := range l.topics {
			for _, p := range t.partitions {
				if p.String() == name {
					found = append(found, p)
				}
			}
		}
	}
	return found
}
