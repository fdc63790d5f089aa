package crash

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/record"
)

// produceTo asks for one record to be appended, with acks=all, and nothing else tried.
func produceTo(c *kgo.Client, topic string, partition int32, size int) error {
	w := record.Builder{}
	w.Append(time.Now().UnixMilli(), nil, make([]byte, size))
	b, err := w.Build()
	if err != nil {
		return err
	}
	request := kmsg.NewPtrProduceRequest()
	request.Acks, request.TimeoutMillis = -1, 10_000
	request.Topics = []kmsg.ProduceRequestTopic{{
		Topic: topic, Partitions: []kmsg.ProduceRequestTopicPartition{{Partition: partition, Records: b}},
	}}
	response, err := c.Broker(1).RetriableRequest(context.Background(), atVersion(9, request))
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(response.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode)
}

// A log directory that fails takes its own partitions offline and no others, at run time and at a start; with the directory its
// partitions come back, whole.
func TestFailedLogDirectoryTakesItsOwnPartitions(t *testing.T) {
	t.Parallel()
	for i, name := range []string{"the first", "the second"} {
		t.Run(name, func(t *testing.T) { t.Parallel(); failDirectory(t, i) })
	}
}

// failDirectory makes the i-th of two log directories fail.
func failDirectory(t *testing.T, i int) {
	const partitions = 8
	b := newBroker(t, "replica.high.watermark.checkpoint.interval.ms=200")
	dirs := []string{filepath.Join(b.Data, "one"), filepath.Join(b.Data, "two")}
	bad := dirs[i]
	b.Settings = append(b.Settings, "log.dirs="+strings.Join(dirs, ","))
	b.start()
	b.create("t", partitions)
	c := b.client()
	lies := map[int32]bool{} // partitions in the bad directory
	for p := range int32(partitions) {
		if err := produceTo(c, "t", p, 100); err != nil {
			t.Fatal(err)
		}
		_, err := os.Stat(filepath.Join(bad, fmt.Sprintf("t-%d", p)))
		lies[p] = err == nil
	}
	if n := count(lies); n == 0 || n == partitions {
		t.Fatalf("%d of %d partitions are in one directory", n, partitions)
	}
	check := func(when string) {
		t.Helper()
		for p := range int32(partitions) {
			err := produceTo(c, "t", p, 100)
			_, fetched := fetchAt(c, "t", p, 0)
			if !lies[p] && (err != nil || fetched != nil) {
				t.Errorf("%s: partition %d of the good directory: %v, %v", when, p, err, fetched)
			}
			if lies[p] && (err == nil || !kerr.IsRetriable(err) || fetched == nil) {
				t.Errorf("%s: partition %d of the bad directory: %v, %v", when, p, err, fetched)
			}
		}
	}

	if err := os.Rename(bad, bad+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(bad, []byte("no directory"), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the broker notices", func() bool { return strings.Contains(b.Log(), "log directory is offline") })
	eventually(t, "the controller notices", func() bool { return c.Broker(1) != nil && offline(t, c, "t") == count(lies) })
	check("at run time")
	b.Kill()
	b.start()
	check("after a start")
	b.stop()
	if err := os.Remove(bad); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(bad+".away", bad); err != nil {
		t.Fatal(err)
	}
	b.start()
	for p := range int32(partitions) {
		eventually(t, fmt.Sprintf("partition %d takes records again", p), func() bool { return produceTo(c, "t", p, 100) == nil })
		if _, err := fetchAt(c, "t", p, 0); err != nil {
			t.Errorf("partition %d: %v", p, err)
		}
	}
}

func count(set map[int32]bool) (n int) {
	for _, in := range set {
		if in {
			n++
		}
	}
	return n
}

// offline is how many partitions of a topic have no leader.
func offline(t *testing.T, c *kgo.Client, topic string) (n int) {
	t.Helper()
	topics, err := kadm.NewClient(c).ListTopics(context.Background(), topic)
	if err != nil {
		return -1
	}
	for _, p := range topics[topic].Partitions {
		if p.Leader < 0 {
			n++
		}
	}
	return n
}

// BO-082, FM-29: a full disk refuses records with KAFKA_STORAGE_ERROR, which clients try again; reading and deleting go on; once there
// is room, so does writing. Nothing that was acknowledged is lost, over a kill on the full disk either.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=64m"); err != nil {
		t.Skipf("a file system of 64 MB can't be mounted here, which takes root: %v", err)
	}
	b := newBroker(t)
	t.Cleanup(func() {
		b.Kill()
		if err := syscall.Unmount(disk, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	ballast := filepath.Join(disk, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 24<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	b.Settings = append(b.Settings, "log.dirs="+filepath.Join(disk, "logs"), "log.retention.check.interval.ms=200")
	b.start()
	b.create("full", 1, "segment.bytes=1048576", "file.delete.delay.ms=0")
	b.create("spare", 1, "segment.bytes=1048576", "file.delete.delay.ms=0")
	c := b.client()
	acknowledged := 0
	for range 16 {
		if err := produceTo(c, "spare", 0, 512<<10); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	for acknowledged < 1000 {
		if err = produceTo(c, "full", 0, 100<<10); err != nil {
			break
		}
		acknowledged++
	}
	if !errors.Is(err, kerr.KafkaStorageError) {
		t.Fatalf("after %d records: %v", acknowledged, err)
	}
	if bytes, err := fetchAt(c, "full", 0, 0); err != nil || len(bytes) == 0 {
		t.Errorf("reading on a full disk: %d bytes, %v", len(bytes), err)
	}

	recovers := func(how string, free func()) {
		t.Helper()
		for range 3 { // to the last byte
			for produceTo(c, "full", 0, 1<<10) == nil {
				acknowledged++
			}
		}
		free()
		eventually(t, how+" makes room", func() bool { return produceTo(c, "full", 0, 100<<10) == nil })
		acknowledged++
		if strings.Contains(b.Log(), "log directory is offline") {
			t.Fatalf("%s: a full disk took the directory offline:\n%s", how, b.Log())
		}
		if end := offsetsEnd(t, c, "full"); end < int64(acknowledged) {
			t.Errorf("%s: %d records of %d", how, end, acknowledged)
		}
	}
	recovers("deleting records", func() {
		admin := kadm.NewClient(c)
		offsets := kadm.Offsets{}
		offsets.AddOffset("spare", 0, -1, -1)
		if _, err := admin.DeleteRecords(context.Background(), offsets); err != nil {
			t.Error(err)
		}
		_, err := admin.DeleteTopic(context.Background(), "spare")
		if err != nil {
			t.Error(err)
		}
	})
	recovers("removing the ballast after a kill", func() {
		b.Kill()
		if err := os.Truncate(ballast, 12<<20); err != nil {
			t.Fatal(err)
		}
		b.start()
	})
	recovers("removing the ballast", func() {
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
	})
}

func offsetsEnd(t *testing.T, c *kgo.Client, topic string) int64 { return offsetAt(t, c, topic, 0, -1) }
