package broker_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// FM-85: a few bytes can name what takes kilobytes to describe, so nothing is described over and over in an answer: each is bounded by
// what there is.
func TestNothingIsDescribedOverAndOver(t *testing.T) {
	const times = config.RepeatsMax + 2
	r := startBroker(t)
	r.create("t", 1)
	g := r.group("g")
	g.commit(5, "t", 7, nil)
	configs := kmsg.NewPtrDescribeConfigsRequest()
	groups := kmsg.NewPtrDescribeGroupsRequest()
	offsets := kmsg.NewPtrOffsetFetchRequest()
	producers := kmsg.NewPtrDescribeProducersRequest()
	partitions := kmsg.NewPtrOffsetFetchRequest()
	partitions.Group, partitions.Topics = "g", []kmsg.OffsetFetchRequestTopic{{Topic: "t"}}
	for range times {
		configs.Resources = append(configs.Resources, kmsg.DescribeConfigsRequestResource{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "t"})
		groups.Groups = append(groups.Groups, "g")
		offsets.Groups = append(offsets.Groups, kmsg.OffsetFetchRequestGroup{Group: "g", MemberEpoch: -1})
		producers.Topics = append(producers.Topics, kmsg.DescribeProducersRequestTopic{Topic: "t", Partitions: []int32{0}})
		partitions.Topics[0].Partitions = append(partitions.Topics[0].Partitions, 0)
	}
	codes := map[string][]int16{}
	for _, row := range ask[*kmsg.DescribeConfigsResponse](g.conn, version(4, configs)).Resources {
		codes["settings"] = append(codes["settings"], row.ErrorCode)
	}
	for _, row := range ask[*kmsg.DescribeGroupsResponse](g.conn, version(5, groups)).Groups {
		codes["groups"] = append(codes["groups"], row.ErrorCode)
	}
	for _, row := range ask[*kmsg.OffsetFetchResponse](g.conn, version(8, offsets)).Groups {
		codes["groups' offsets"] = append(codes["groups' offsets"], row.ErrorCode)
	}
	for _, row := range ask[*kmsg.DescribeProducersResponse](g.conn, version(0, producers)).Topics {
		codes["producers"] = append(codes["producers"], row.Partitions[0].ErrorCode)
	}
	for _, row := range ask[*kmsg.OffsetFetchResponse](g.conn, version(5, partitions)).Topics[0].Partitions {
		codes["offsets"] = append(codes["offsets"], row.ErrorCode)
	}
	want := append(make([]int16, times-1), int16(wire.InvalidRequest))
	for _, what := range []string{"settings", "groups", "groups' offsets", "producers", "offsets"} {
		if !slices.Equal(codes[what], want) {
			t.Errorf("%s: %v", what, codes[what])
		}
	}
}

// Long lists of names cost time in proportion.
func TestLongListsOfNames(t *testing.T) {
	r := startBroker(t)
	r.create("t", 1)
	const n = 100_000
	request := kmsg.NewPtrDescribeConfigsRequest()
	resource := kmsg.DescribeConfigsRequestResource{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "t"}
	for i := range n {
		resource.ConfigNames = append(resource.ConfigNames, fmt.Sprint("unknown-", i))
	}
	for range n {
		resource.ConfigNames = append(resource.ConfigNames, "retention.ms")
	}
	request.Resources = append(request.Resources, resource)
	began := time.Now()
	if rows := ask[*kmsg.DescribeConfigsResponse](r.dial(), version(4, request)).Resources[0].Configs; len(rows) != 1 {
		t.Errorf("%d settings", len(rows))
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("%d names took %v", 2*n, took)
	}
}
