package engine

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// Safety rules 29 and 30: a stop says nothing of partitions that the broker could not lead any more, since their log directory had failed.
func TestSafety30AStopIsNotWholeWithoutAllDirectories(t *testing.T) {
	r := tiered(t, "log.dirs=/d1,/d2", "tier.max.unsealed.ms=600000")
	topics := []string{"a", "b", "c", "d"}
	for _, name := range topics {
		r.create(name)
	}
	r.pass(time.Second)
	for _, name := range topics {
		r.produceTo(name, ledger{})
	}
	r.stop()
	r.open()
	r.settled()
	for _, name := range topics {
		r.produceTo(name, ledger{})
	}
	r.disk.SetRules(vfs.Rule{Path: "/d2/*/*", Op: vfs.OpWrite, Err: errors.New("input/output error")})
	var failed []string
	for _, name := range topics {
		if code := r.produce(name); code != wire.None {
			failed = append(failed, name)
		}
	}
	if len(failed) == 0 || len(failed) == len(topics) {
		t.Fatalf("on the disk that failed: %v", failed)
	}
	r.pass(2 * time.Second)
	r.e.Stop()
	r.until("it has stopped", func() bool { return isClosed(r.e.Stopped()) })
	r.wipe()
	err := r.tryOpen()
	if !errors.Is(err, ErrDataMissing) {
		t.Fatalf("opened with %v", err)
	}
	for _, name := range failed {
		if !strings.Contains(err.Error(), name+"-0 from offset 1 on") {
			t.Errorf("%s is not named: %v", name, err)
		}
	}
}
