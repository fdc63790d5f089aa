package controller

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// world drives a controller as an engine would: commits lag behind, get lost, and the role is given up and taken again.
type world struct {
	c         *Controller
	now       time.Time
	committed *metadata.Image
	queue     [][]metadata.Record
	lives     int // of brokers, for incarnations
	// who led a partition in a leader epoch: the incarnation, "" for nobody
	led map[string]string
}

// Whatever is asked, and whatever of it gets lost: the speculative image is what the committed one becomes, epochs never go down,
// no incarnation resumes a leader epoch of another (safety.md 10), and every partition keeps an ISR that its leader is in.
func TestSafety05And10SpeculativeImageEqualsCommittedImage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{c: newController(t), now: start, committed: metadata.Empty(), led: map[string]string{}}
		w.elect()
		for id := range 3 {
			w.register(t, id+1)
		}
		w.commit(t, len(w.queue))
		for b := range w.c.Image().Brokers() {
			w.beat(t, b, false, false)
		}
		for range rapid.IntRange(10, 60).Draw(t, "actions") {
			w.now = w.now.Add(time.Duration(rapid.IntRange(0, 4000).Draw(t, "ms")) * time.Millisecond)
			switch rapid.SampledFrom([]string{"commit", "commit", "change", "change", "change", "beat", "beat", "register", "tick", "lose"}).Draw(t, "action") {
			case "commit":
				w.commit(t, rapid.IntRange(0, len(w.queue)).Draw(t, "entries"))
			case "change":
				w.change(t)
			case "beat":
				if b := w.broker(t); b != nil {
					w.beat(t, b, rapid.IntRange(0, 3).Draw(t, "fence") == 3, rapid.IntRange(0, 9).Draw(t, "shut down") == 9)
				}
			case "register":
				w.register(t, rapid.IntRange(1, 3).Draw(t, "broker"))
			case "tick":
				if !w.c.Isolated(w.now) {
					w.enqueue(w.c.Tick(w.now))
				}
			case "lose":
				w.queue = nil
				w.c.Resign()
				w.elect()
			}
		}
		w.commit(t, len(w.queue))
		if w.committed.Hash() != w.c.Image().Hash() {
			t.Fatalf("committed %s\nspeculative %s", w.committed.Snapshot(), w.c.Image().Snapshot())
		}
	})
}

func (w *world) elect() {
	w.enqueue(w.c.Elected(w.now, w.committed, w.committed.Controller().Epoch+1))
}

func (w *world) enqueue(records []metadata.Record) {
	if len(records) > 0 {
		w.queue = append(w.queue, records)
	}
}

func (w *world) step(t *rapid.T, change metadata.Change) metadata.Answer {
	outcome := w.c.Step(w.now, change)
	w.enqueue(outcome.Records)
	if outcome.Offset != w.c.Image().Offset() {
		t.Fatalf("the answer waits for offset %d, the image ends at %d", outcome.Offset, w.c.Image().Offset())
	}
	return outcome.Answer
}

func (w *world) beat(t *rapid.T, b *metadata.Broker, fence, shutdown bool) {
	w.step(t, &metadata.BrokerHeartbeat{
		BrokerID: b.ID, BrokerEpoch: b.Epoch, MetadataOffset: w.committed.Offset(), WantFence: fence, WantShutdown: shutdown,
	})
}

func (w *world) register(t *rapid.T, id int) {
	w.lives++
	boot := rapid.SampledFrom([]string{"", "boot"}).Draw(t, "boot")
	directories := rapid.SampledFrom([][]string{{"x"}, {"x", "y"}, {"y"}}).Draw(t, "directories")
	var ids []string
	for _, directory := range directories {
		ids = append(ids, fmt.Sprint(directory, id))
	}
	w.step(t, registration(id, fmt.Sprint("life ", w.lives), boot, "", "cluster", -1, ids))
}

func (w *world) broker(t *rapid.T) *metadata.Broker {
	brokers := slices.Collect(w.c.Image().Brokers())
	if len(brokers) == 0 {
		return nil
	}
	return rapid.SampledFrom(brokers).Draw(t, "of broker")
}

func (w *world) topic(t *rapid.T) *metadata.Topic {
	topics := slices.Collect(w.c.Image().Topics(""))
	if len(topics) == 0 {
		return nil
	}
	return rapid.SampledFrom(topics).Draw(t, "of topic")
}

func (w *world) change(t *rapid.T) {
	validateOnly := rapid.IntRange(0, 4).Draw(t, "validate only") == 4
	before := w.c.Image()
	topic, b := w.topic(t), w.broker(t)
	kind := rapid.SampledFrom([]string{"create", "create", "delete", "grow", "isr", "isr", "configs", "ids", "assign", "unregister"}).Draw(t, "kind")
	switch {
	case kind == "create":
		change := &metadata.CreateTopics{ValidateOnly: validateOnly}
		for range rapid.IntRange(1, 3).Draw(t, "topics") {
			change.Topics = append(change.Topics, metadata.NewTopic{
				Name:              rapid.SampledFrom([]string{"a", "b", "c.d", "c_d", "bad name"}).Draw(t, "name"),
				Partitions:        rapid.SampledFrom([]int32{-1, 0, 1, 2, 4}).Draw(t, "partitions"),
				ReplicationFactor: rapid.SampledFrom([]int16{-1, 0, 2, 2, 3, 3, 4}).Draw(t, "factor"),
			})
		}
		rows := w.step(t, change).(*metadata.CreateTopicsAnswer).Topics
		names := map[string]bool{}
		for _, topic := range change.Topics {
			names[topic.Name] = true
		}
		if len(rows) != len(names) {
			t.Fatalf("%d rows for %d names", len(rows), len(names))
		}
		for _, row := range rows {
			if created := w.c.Image().Topic(row.Name); !validateOnly && row.Result.Code == wire.None && (created == nil || created.ID != row.ID) {
				t.Fatalf("%s is not in the image", row.Name)
			}
		}
	case kind == "configs":
		value := rapid.SampledFrom([]string{"1", "x"}).Draw(t, "value")
		change := &metadata.IncrementalAlterConfigs{ValidateOnly: validateOnly}
		for _, name := range []string{"a", "b"} {
			change.Resources = append(change.Resources, metadata.ResourceOps{
				Resource: metadata.ConfigResource{Type: metadata.TopicResource, Name: name},
				Ops:      []metadata.ConfigOp{{Name: "retention.ms", Op: metadata.SetConfig, Value: &value}},
			})
		}
		w.step(t, change)
	case topic != nil && kind == "delete":
		w.step(t, &metadata.DeleteTopics{Topics: []metadata.TopicRef{{ID: topic.ID}}})
		validateOnly = false
	case topic != nil && kind == "grow":
		w.step(t, &metadata.CreatePartitions{
			Topics:       []metadata.MorePartitions{{Name: topic.Name, Count: int32(len(topic.Partitions) + rapid.IntRange(0, 2).Draw(t, "more"))}},
			ValidateOnly: validateOnly,
		})
	case topic != nil && kind == "isr":
		w.proposeISR(t, topic)
		validateOnly = false
	case topic != nil && b != nil && kind == "assign":
		if len(b.Directories) > 0 {
			w.step(t, &metadata.AssignReplicasToDirs{BrokerID: b.ID, BrokerEpoch: b.Epoch, Replicas: []metadata.DirectoryAssignment{
				{TopicID: topic.ID, Directory: rapid.SampledFrom(b.Directories).Draw(t, "directory")},
			}})
		}
		validateOnly = false
	case b != nil && kind == "ids":
		answer := w.step(t, &metadata.AllocateProducerIDs{BrokerID: b.ID, BrokerEpoch: b.Epoch}).(*metadata.AllocateProducerIDsAnswer)
		if answer.First+wire.ProducerID(answer.Length) != w.c.Image().NextProducerID() {
			t.Fatalf("block %+v, next id %d", answer, w.c.Image().NextProducerID())
		}
		validateOnly = false
	case b != nil && kind == "unregister" && rapid.IntRange(0, 4).Draw(t, "really") == 4:
		w.step(t, &metadata.UnregisterBroker{BrokerID: b.ID})
		validateOnly = false
	}
	if validateOnly && w.c.Image() != before {
		t.Fatal("validation alone changed the image")
	}
}

// proposeISR is a leader's wish; mostly with current epochs.
func (w *world) proposeISR(t *rapid.T, topic *metadata.Topic) {
	index := rapid.IntRange(0, len(topic.Partitions)-1).Draw(t, "index")
	p := topic.Partitions[index]
	leader := w.c.Image().Broker(p.Leader)
	if leader == nil {
		return
	}
	proposal := metadata.ISRProposal{TopicID: topic.ID, Partition: int32(index), LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch}
	if rapid.IntRange(0, 4).Draw(t, "stale") == 4 {
		proposal.PartitionEpoch--
	}
	for _, id := range p.Replicas {
		if id == p.Leader || rapid.Bool().Draw(t, "in") {
			member := metadata.ISRMember{BrokerID: id, Epoch: -1}
			if b := w.c.Image().Broker(id); b != nil {
				member.Epoch = b.Epoch
			}
			proposal.ISR = append(proposal.ISR, member)
		}
	}
	w.step(t, &metadata.AlterPartition{BrokerID: leader.ID, BrokerEpoch: leader.Epoch, Partitions: []metadata.ISRProposal{proposal}})
}

func (w *world) commit(t *rapid.T, entries int) {
	for _, records := range w.queue[:entries] {
		next, _, err := w.committed.Apply(w.committed.Offset()+1, records)
		if err != nil {
			t.Fatal(err)
		}
		w.check(t, next)
		w.committed = next
	}
	w.queue = w.queue[entries:]
}

func (w *world) check(t *rapid.T, next *metadata.Image) {
	for topic := range next.Topics("") {
		if len(topic.Partitions) == 0 {
			t.Fatalf("topic %s has no partitions", topic.Name)
		}
		for index, p := range topic.Partitions {
			name := fmt.Sprintf("%s-%d in epoch %d", topic.ID, index, p.LeaderEpoch)
			if len(p.ISR) == 0 {
				t.Fatalf("%s: no ISR", name)
			}
			leader := ""
			if p.Leader != wire.NoBroker {
				b := next.Broker(p.Leader)
				switch {
				case !slices.Contains(p.ISR, p.Leader):
					t.Fatalf("%s: leader %d is not in the ISR %v", name, p.Leader, p.ISR)
				case b == nil || !directoryOnline(b, p):
					t.Fatalf("%s: leader %d has no log", name, p.Leader)
				case !b.Active() && len(p.ISR) > 1:
					t.Fatalf("%s: leader %d is fenced, and others are in the ISR %v", name, p.Leader, p.ISR)
				}
				leader = b.Incarnation
			}
			if before, seen := w.led[name]; seen && before != leader {
				t.Fatalf("%s: led by %q, then by %q", name, before, leader)
			}
			w.led[name] = leader
			if before := w.committed.Partition(topic.Name, int32(index)); before != nil && w.committed.Topic(topic.Name).ID == topic.ID &&
				(p.LeaderEpoch < before.LeaderEpoch || p.PartitionEpoch < before.PartitionEpoch) {
				t.Fatalf("%s: epochs went down", name)
			}
			for i, id := range p.ISR {
				if b := next.Broker(id); len(p.ISR) > 1 && (b == nil || !b.Active()) {
					t.Fatalf("%s: member %d of the ISR %v is not active", name, i, p.ISR)
				}
			}
		}
	}
}
