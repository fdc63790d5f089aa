package broker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// FM-85: a few bytes can name what takes kilobytes to describe, so nothing is described twice in an answer: each is bounded by what
// there is.
func TestNothingIsDescribedTwice(t *testing.T) {
	r := startBroker(t)
	r.create("t", 1)
	g := r.group("g")
	g.commit(5, "t", 7, nil)
	want := func(what string, codes ...int16) {
		t.Helper()
		for i, code := range codes {
			expected := []wire.Code{wire.None, wire.InvalidRequest, wire.InvalidRequest}[i]
			if wire.Code(code) != expected {
				t.Errorf("%s, number %d: %v", what, i, wire.Code(code))
			}
		}
	}

	configs := kmsg.NewPtrDescribeConfigsRequest()
	groups := kmsg.NewPtrDescribeGroupsRequest()
	offsets := kmsg.NewPtrOffsetFetchRequest()
	producers := kmsg.NewPtrDescribeProducersRequest()
	for range 3 {
		configs.Resources = append(configs.Resources, kmsg.DescribeConfigsRequestResource{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "t"})
		groups.Groups = append(groups.Groups, "g")
		offsets.Groups = append(offsets.Groups, kmsg.OffsetFetchRequestGroup{Group: "g", MemberEpoch: -1})
		producers.Topics = append(producers.Topics, kmsg.DescribeProducersRequestTopic{Topic: "t", Partitions: []int32{0}})
	}
	rows := ask[*kmsg.DescribeConfigsResponse](g.conn, version(4, configs)).Resources
	want("settings", rows[0].ErrorCode, rows[1].ErrorCode, rows[2].ErrorCode)
	described := ask[*kmsg.DescribeGroupsResponse](g.conn, version(5, groups)).Groups
	want("groups", described[0].ErrorCode, described[1].ErrorCode, described[2].ErrorCode)
	fetched := ask[*kmsg.OffsetFetchResponse](g.conn, version(8, offsets)).Groups
	want("offsets of groups", fetched[0].ErrorCode, fetched[1].ErrorCode, fetched[2].ErrorCode)
	topics := ask[*kmsg.DescribeProducersResponse](g.conn, version(0, producers)).Topics
	want("producers", topics[0].Partitions[0].ErrorCode, topics[1].Partitions[0].ErrorCode, topics[2].Partitions[0].ErrorCode)

	partitions := kmsg.NewPtrOffsetFetchRequest()
	partitions.Group, partitions.Topics = "g", []kmsg.OffsetFetchRequestTopic{{Topic: "t", Partitions: []int32{0, 0, 0}}}
	list := ask[*kmsg.OffsetFetchResponse](g.conn, version(5, partitions)).Topics[0].Partitions
	want("offsets", list[0].ErrorCode, list[1].ErrorCode, list[2].ErrorCode)
	if list[0].Offset != 7 {
		t.Errorf("offset %d", list[0].Offset)
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
