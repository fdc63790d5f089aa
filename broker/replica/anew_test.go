package replica_test

import (
	"errors"
	"path"
	"testing"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// safety.md 21: the log of a partition that is older than the process, or has had another leader, begins with nothing of what it
// held, and is compared with the bucket before it is believed. A new topic's needs no look at it.
func TestSafety21ALogThatIsMissingIsMadeAnew(t *testing.T) {
	r, b := newRig(t), &bucket{}
	r.tier = b
	r.restart()
	r.m.SetStraysAside(r.now)
	r.create("t", tieredTopic)
	tp := wire.TopicPartition{Topic: "t"}
	doubted := func() bool {
		l, ok := r.logs.Get(tp)
		return ok && l.MayLackEnd()
	}
	if doubted() {
		t.Error("the log of a new topic may lack its end")
	}
	r.restart()
	if doubted() {
		t.Error("it may lack its end after a restart")
	}
	if err := errors.Join(r.logs.Close(r.now, 1), r.fs.RemoveAll(path.Join(r.dir, tp.String()))); err != nil {
		t.Fatal(err)
	}
	r.open()
	if !doubted() {
		t.Error("the log that is made anew lacks nothing")
	}
}
