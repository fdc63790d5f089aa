package sim

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// committer commits offsets for a group without members, as a consumer with an assignment of its own does.
type committer struct {
	client
	group *groupLedger
	found bool // the coordinator was looked up, which creates its topic
	out   bool
	next  int64
}

func newCommitter(c *cluster, i int) *committer {
	k := &committer{group: c.ledger.group(fmt.Sprintf("solo-%d", i))}
	k.client = newClient(c, fmt.Sprintf("committer-%d", i), k.work)
	k.strays = true
	k.soon(500 * time.Millisecond)
	return k
}

func (k *committer) waitsFor() string {
	if k.out {
		return k.name + " waits for an answer"
	}
	return ""
}

func (k *committer) work() {
	switch {
	case k.out || k.c.healed:
		return
	case !k.connected():
	case !k.found:
		k.out = true
		k.findCoordinator(k.group.name, func(ok bool) { k.out, k.found = false, ok; k.soon(100 * time.Millisecond) })
		return
	default:
		if of := k.c.ledger.drawLasting(k.random); of != nil {
			k.commit(of)
			return
		}
	}
	k.soon(200 * time.Millisecond)
}

func (k *committer) commit(of *partition) {
	k.out = true
	k.next++
	k.commitOffset(k.group, of, k.next, -1, "", func(wire.Code) {
		k.out = false
		k.soon(100 * time.Millisecond)
	})
}

// findCoordinator looks a group's coordinator up; the first look-up of all creates the topic of the offsets.
func (cl *client) findCoordinator(group string, done func(found bool)) {
	request := kmsg.NewPtrFindCoordinatorRequest()
	request.SetVersion(cl.version(kmsg.FindCoordinator, 0, anyVersion))
	request.CoordinatorKey, request.CoordinatorKeys = group, []string{group}
	cl.call(request, group, func(response kmsg.Response) {
		r, ok := response.(*kmsg.FindCoordinatorResponse)
		if !ok {
			done(false)
			return
		}
		result := r.ErrorCode
		if len(r.Coordinators) > 0 {
			result = r.Coordinators[0].ErrorCode
		}
		cl.c.trace.add(cl.name, "< FindCoordinator: %s", code(result))
		done(result == 0)
	})
}

// commitOffset commits one offset. done gets NETWORK_EXCEPTION where there is no answer.
func (cl *client) commitOffset(g *groupLedger, of *partition, offset int64, generation int32, member string, done func(wire.Code)) {
	request := kmsg.NewPtrOffsetCommitRequest()
	request.SetVersion(cl.version(kmsg.OffsetCommit, 2, anyVersion))
	request.Group, request.Generation, request.MemberID = g.name, generation, member
	m := g.begin(of, offset)
	row, part := kmsg.NewOffsetCommitRequestTopic(), kmsg.NewOffsetCommitRequestTopicPartition()
	row.Topic, part.Partition, part.Offset, part.Metadata = of.topic.name, of.index, offset, m.note()
	row.TopicID = of.topic.id
	row.Partitions = append(row.Partitions, part)
	request.Topics = append(request.Topics, row)
	cl.call(request, fmt.Sprintf("%d: %s@%d of %s", m.serial, of, offset, g.name), func(response kmsg.Response) {
		r, ok := response.(*kmsg.OffsetCommitResponse)
		if !ok {
			g.end(m, false, false)
			done(wire.NetworkException)
			return
		}
		result := code(r.Topics[0].Partitions[0].ErrorCode)
		cl.c.trace.add(cl.name, "< OffsetCommit %d: %s", m.serial, result)
		g.end(m, result == wire.None, result != wire.None && result != wire.RequestTimedOut && result != wire.CoordinatorNotAvailable && result != wire.NotCoordinator)
		done(result)
	})
}
