package broker_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Topics are deleted at any moment of their segments' uploads, and nothing but their own requests hears of it.
func TestTopicsComeAndGoWhileTheyAreUploaded(t *testing.T) {
	r := startBroker(t, "log.segment.delete.delay.ms=10", "log.retention.check.interval.ms=20")
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	admin := kadm.NewClient(r.client())
	value := make([]byte, 200<<10)
	const rounds, alive = 40, 4 // uploads begin within half a second: a topic is that old when it goes
	for i := range rounds {
		topic := fmt.Sprint("t", i)
		r.create(topic, 3, "segment.bytes=1048576", "local.retention.bytes=1")
		var records []*kgo.Record
		for k := range 45 {
			records = append(records, &kgo.Record{Topic: topic, Partition: int32(k % 3), Value: value})
		}
		p := r.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
		if err := p.ProduceSync(ctx, records...).FirstErr(); err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		p.Close()
		if i < alive {
			continue
		}
		if _, err := admin.DeleteTopic(ctx, fmt.Sprint("t", i-alive)); err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
	}
	if text := r.warnings.String(); strings.Contains(text, "offline") || strings.Contains(text, "level=ERROR") {
		t.Errorf("the broker says:\n%s", text)
	}
}
