package main

import (
	"errors"
	"io"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// failedPart is what kadm says of partition 1 of t.
func failedPart(err error, all bool) error {
	request := kmsg.NewPtrListOffsetsRequest()
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic, topic.Partitions = "t", []kmsg.ListOffsetsRequestTopicPartition{{Partition: 1}}
	request.Topics = append(request.Topics, topic)
	return &kadm.ShardErrors{Name: "ListOffsets", AllFailed: all, Errs: []kadm.ShardError{{Req: request, Err: err}}}
}

func TestAPartitionWithoutALeaderDoesNotHideTheOthers(t *testing.T) {
	offsets, err := listing(listed(kadm.ListedOffset{Topic: "t", Offset: 10}), failedPart(kerr.LeaderNotAvailable, false))
	if err != nil {
		t.Fatal(err)
	}
	if known := knownOffset(offsets, "t", 0); known == nil || *known != 10 {
		t.Errorf("partition 0 is at %v", known)
	}
	if known := knownOffset(offsets, "t", 1); known != nil {
		t.Errorf("partition 1 is at %d", *known)
	}
	if _, err := listedOffset(offsets, "t", 1); !errors.Is(err, kerr.LeaderNotAvailable) {
		t.Errorf("who needs partition 1 is told %v", err)
	}
}

func TestATopicWithoutLeadersIsListed(t *testing.T) {
	if offsets, err := listing(kadm.ListedOffsets{}, failedPart(kerr.LeaderNotAvailable, true)); err != nil || len(offsets["t"]) != 1 {
		t.Errorf("%v, %v", offsets, err)
	}
}

func TestAClusterThatDoesNotAnswerIsNotListed(t *testing.T) {
	if _, err := listing(kadm.ListedOffsets{}, failedPart(io.EOF, true)); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}
