package engine

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/replica"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// died is what a broker panics with where a test wants it dead.
type died struct{}

// life is all that can happen to a broker of one partition. What it was told is in acked, by topic id, however far it came.
type life struct {
	*rig
	acked map[wire.TopicID]int
	moved wire.Offset // the log start that DeleteRecords has answered for the second topic
}

func (l *life) live() {
	l.open()
	l.until("it serves", l.e.Serving)
	l.create("t")
	l.append("t", 3)
	l.trim("t", 2)
	l.pass(6 * time.Second) // checkpoints
	name := "t"
	deleted := l.submit(&metadata.DeleteTopics{Topics: []metadata.TopicRef{{Name: &name}}})
	l.until("the topic is gone", deleted.done)
	l.create("t")
	l.append("t", 1)
	l.pass(2 * time.Second) // the former one's files go
	l.append("t", 1)
	l.moved = l.trim("t", 1)
	l.stop()
	l.open()
	l.until("it serves again", l.e.Serving)
	l.append("t", 2)
	l.stop()
}

func (l *life) append(topic string, n int) {
	id := l.e.Image().Topic(topic).ID
	for range n {
		if code := l.produce(topic); code != wire.None {
			l.t.Fatal(code)
		}
		l.acked[id]++
	}
}

func (l *life) trim(topic string, to wire.Offset) wire.Offset {
	var result replica.DeleteRecordsResult
	l.e.Replicas().DeleteRecords(l.now, &replica.DeleteRecordsRequest{
		Timeout: time.Second, Partitions: []replica.DeleteRecordsPartition{{Topic: topic, Offset: to}},
	}, func(results []replica.DeleteRecordsResult) { result = results[0] })
	if result.Code != wire.None {
		l.t.Fatal(result.Code)
	}
	return to
}

// diesAt lives until the n-th change of a file, and tells whether it came so far.
func (l *life) diesAt(n int) (dead bool) {
	defer func() {
		if r := recover(); r != nil {
			if _, dead = r.(died); !dead {
				panic(r)
			}
		}
	}()
	var rules []vfs.Rule
	for _, op := range []vfs.Op{
		vfs.OpCreate, vfs.OpRename, vfs.OpRemove, vfs.OpRemoveAll, vfs.OpMkdirAll, vfs.OpWrite, vfs.OpTruncate, vfs.OpSync, vfs.OpSyncDir,
	} {
		rules = append(rules, vfs.Rule{Op: op, Hook: func(vfs.Call) {
			if n--; n == 0 {
				panic(died{})
			}
		}})
	}
	l.rules = rules
	l.live()
	return false
}

// Wherever a broker dies, the next one starts, knows what is committed, and has what was acknowledged.
func TestABrokerMayDieAnywhere(t *testing.T) {
	for _, powerLoss := range []bool{false, true} {
		t.Run(map[bool]string{false: "process crash", true: "power loss"}[powerLoss], func(t *testing.T) {
			t.Parallel()
			step := 2
			if testing.Short() {
				step = 11
			}
			for n := 1; dieAndComeBack(t, n, powerLoss); n += step {
			}
		})
	}
}

// dieAndComeBack tells whether a life is long enough to die at its n-th change of a file.
func dieAndComeBack(t *testing.T, n int, powerLoss bool) bool {
	l := &life{rig: newRig(t, "log.dirs=/d1"), acked: map[wire.TopicID]int{}}
	if !l.diesAt(n) {
		return false
	}
	what := fmt.Sprintf("change %d", n)
	l.kill()
	if powerLoss {
		l.files = l.files.CrashClone(l.random)
		l.boot = "another"
	}
	l.rules = nil
	if err := l.tryOpen(); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	l.until("it serves after "+what, l.e.Serving)
	l.consistent()
	l.check(what, powerLoss)
	return true
}

func (l *life) check(what string, powerLoss bool) {
	l.t.Helper()
	if topic := l.e.Image().Topic("t"); topic != nil {
		info, _ := l.e.Replicas().Partition(wire.TopicPartition{Topic: "t"})
		acked := l.acked[topic.ID]
		if end := int(info.LogEndOffset); !powerLoss && end != acked && end != acked+1 {
			l.t.Errorf("%s: the log ends at %d, %d records were acknowledged", what, end, acked)
		}
		if start := info.LogStartOffset; len(l.acked) > 1 && start < l.moved && start < info.LogEndOffset {
			l.t.Errorf("%s: the log starts at %d, records below %d were deleted", what, start, l.moved)
		}
		if code := l.produce("t"); code != wire.None {
			l.t.Errorf("%s: produce answers %s", what, code)
		}
	}
	if dirs := l.dirs(); !powerLoss && slices.ContainsFunc(dirs, func(d string) bool { return strings.HasSuffix(d, "-stray") }) {
		l.t.Errorf("%s: %v", what, dirs)
	}
	l.stop()
	if _, err := l.files.Stat(path.Join("/d1", ".kafka_cleanshutdown")); err != nil {
		l.t.Errorf("%s: no clean stop after it: %v", what, err)
	}
}
