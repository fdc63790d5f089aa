package engine

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// TestALoadThatFailedIsTriedAgain: the partitions of __consumer_offsets are made on a full disk, so that there is no log to read.
// Once there is room, their groups are served.
func TestALoadThatFailedIsTriedAgain(t *testing.T) {
	r := serving(t)
	r.disk.SetRules(vfs.Rule{Op: vfs.OpCreate, Path: "*.log", Err: vfs.ErrNoSpace})
	r.create(wire.ConsumerOffsetsTopic)
	if code := r.offsetsOf("g"); code != wire.NotCoordinator {
		t.Errorf("without a log: %s", code)
	}
	r.disk.SetRules()
	r.pass(2 * reloadInterval)
	if code := r.offsetsOf("g"); code != wire.None {
		t.Errorf("with a log: %s", code)
	}
	r.pass(time.Minute)
	if !r.e.reloads.due.IsZero() {
		t.Error("it is tried again though it was loaded")
	}
}

// offsetsOf asks for the offsets of a group and gives the code of the answer.
func (r *rig) offsetsOf(group string) wire.Code {
	request := kmsg.NewPtrOffsetFetchRequest()
	request.SetVersion(7)
	request.Group = group
	code := wire.UnknownServerError
	r.e.groups.OffsetFetch(r.now, request, func(response *kmsg.OffsetFetchResponse) { code = wire.Code(response.ErrorCode) })
	return code
}
