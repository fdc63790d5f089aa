package broker_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// A stop is in order and leaves the clean marker although clients have requests parked that nothing will complete.
func TestStopIsNotHeldUpByParkedRequests(t *testing.T) {
	r := startBroker(t)
	r.create("t", 1)
	fetch := kmsg.NewPtrFetchRequest()
	fetch.MaxWaitMillis, fetch.MinBytes = 60_000, 1
	fetch.Topics = []kmsg.FetchRequestTopic{{Topic: "t", Partitions: []kmsg.FetchRequestTopicPartition{{CurrentLeaderEpoch: -1}}}}
	r.dial().send(version(4, fetch))
	r.wantServing() // meanwhile the fetch arrives
	began := time.Now()
	r.stop()
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the stop took %v", took)
	}
	if _, err := os.Stat(filepath.Join(r.dir, "logs", ".kafka_cleanshutdown")); err != nil {
		t.Error(err)
	}
}
