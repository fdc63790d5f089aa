package engine

import (
	"time"

	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier"
)

// recovering are the partitions of a recovered cluster whose leaders have begun them above all offsets that may have been acknowledged.
// They serve once the metadata says so: a start that still found them marked would begin them anew, without what they have taken since.
type recovering struct {
	engine  *Engine
	waiting []tier.Release
	out     bool      // a proposal
	due     time.Time // of the next one; zero: nothing waits, or a proposal is out
}

const (
	recoveringRetry = 100 * time.Millisecond
	recoveringMax   = 1000 // partitions in a proposal
)

// hold keeps a partition back if it is marked as recovering, and says so.
func (r *recovering) hold(now time.Time, released tier.Release) bool {
	p := r.engine.Image().Partition(released.TopicPartition.Topic, released.TopicPartition.Partition)
	if p == nil || p.Recovery != metadata.Recovering || p.LeaderEpoch != released.Epoch {
		return false
	}
	r.waiting = append(r.waiting, released)
	if !r.out {
		r.due = now
	}
	return true
}

// step proposes that partitions which wait have recovered.
func (r *recovering) step(now time.Time) {
	e := r.engine
	if r.due.IsZero() || now.Before(r.due) || e.member.state != registered {
		return
	}
	r.due = time.Time{}
	n := min(len(r.waiting), recoveringMax)
	sent := r.waiting[:n:n]
	r.waiting = r.waiting[n:]
	change := &metadata.AlterPartition{BrokerID: e.self, BrokerEpoch: e.member.epoch}
	var proposed []tier.Release
	for _, released := range sent {
		tp := released.TopicPartition
		topic := e.Image().Topic(tp.Topic)
		if topic == nil {
			continue
		}
		p := topic.Partition(tp.Partition)
		if p == nil || p.LeaderEpoch != released.Epoch || p.Leader != e.self {
			continue // a later leadership begins by itself
		}
		proposal := metadata.ISRProposal{
			TopicID: topic.ID, Partition: tp.Partition, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch, Recovery: metadata.Recovered,
		}
		for _, id := range p.ISR {
			proposal.ISR = append(proposal.ISR, metadata.ISRMember{BrokerID: id, Epoch: -1})
		}
		change.Partitions = append(change.Partitions, proposal)
		proposed = append(proposed, released)
	}
	if len(proposed) == 0 {
		r.goOn(now)
		return
	}
	r.out = true
	e.Submit(now, change, now.Add(e.requestTimeout()), func(answer metadata.Answer, err error) {
		r.out = false
		decided, _ := answer.(*metadata.AlterPartitionAnswer)
		r.decided(e.stepped, proposed, decided, err)
	})
}

// decided lets the partitions serve whose mark is gone, and tries again with the others.
func (r *recovering) decided(now time.Time, proposed []tier.Release, answer *metadata.AlterPartitionAnswer, err error) {
	failed := err != nil || answer == nil || answer.Result.Code != wire.None || len(answer.Partitions) != len(proposed)
	for i, released := range proposed {
		if failed || answer.Partitions[i].Result.Code != wire.None {
			r.waiting = append(r.waiting, released)
		} else {
			released.Restarted = false // nobody has to be told of that once more
			r.engine.tier.release(now, released)
		}
	}
	r.goOn(now)
}

// nextWake is when a proposal is due; zero if none is, or nobody would take it.
func (r *recovering) nextWake() time.Time {
	if r.engine.member.state != registered {
		return time.Time{}
	}
	return r.due
}

// goOn makes the next proposal soon, if there is one to make.
func (r *recovering) goOn(now time.Time) {
	if len(r.waiting) > 0 {
		r.due = now.Add(recoveringRetry)
	}
}
