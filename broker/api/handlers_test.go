package api_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/api"
	"github.com/tidemark-io/tidemark/broker/wire"
)

func wireKey(key int16) wire.APIKey { return wire.APIKey(key) }

func apiVersions(version int16) *kmsg.ApiVersionsRequest {
	request := kmsg.NewPtrApiVersionsRequest()
	request.Version, request.ClientSoftwareName, request.ClientSoftwareVersion = version, "test", "1.0"
	return request
}

// asking makes, for each key, a request that a broker with the topic "t" answers without an error. n is new each time.
var asking = map[int16]func(r *rig, version int16, n int) kmsg.Request{
	0: func(r *rig, version int16, _ int) kmsg.Request {
		request := kmsg.NewPtrProduceRequest()
		request.Acks, request.TimeoutMillis = -1, 1000
		request.Topics = []kmsg.ProduceRequestTopic{{
			Topic: "t", TopicID: r.topicID("t"), Partitions: []kmsg.ProduceRequestTopicPartition{{Records: batch(r.t, 3)}},
		}}
		return request
	},
	1: func(r *rig, _ int16, _ int) kmsg.Request {
		request := kmsg.NewPtrFetchRequest()
		request.MaxWaitMillis, request.MinBytes, request.MaxBytes, request.SessionEpoch = 100, 1, 1<<20, -1
		p := kmsg.NewFetchRequestTopicPartition()
		p.PartitionMaxBytes = 1 << 20
		request.Topics = []kmsg.FetchRequestTopic{{Topic: "t", TopicID: r.topicID("t"), Partitions: []kmsg.FetchRequestTopicPartition{p}}}
		return request
	},
	2: func(*rig, int16, int) kmsg.Request {
		request := kmsg.NewPtrListOffsetsRequest()
		request.ReplicaID = -1
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Timestamp = -1
		request.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: "t", Partitions: []kmsg.ListOffsetsRequestTopicPartition{p}}}
		return request
	},
	3: func(*rig, int16, int) kmsg.Request {
		request := kmsg.NewPtrMetadataRequest()
		request.Topics = []kmsg.MetadataRequestTopic{{Topic: kmsg.StringPtr("t")}}
		return request
	},
	8: func(r *rig, _ int16, _ int) kmsg.Request {
		request := kmsg.NewPtrOffsetCommitRequest()
		request.Group, request.Generation = "g", -1
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Offset, p.Metadata = 1, kmsg.StringPtr("m")
		request.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "t", TopicID: r.topicID("t"), Partitions: []kmsg.OffsetCommitRequestTopicPartition{p}}}
		return request
	},
	9: func(r *rig, version int16, _ int) kmsg.Request {
		request := kmsg.NewPtrOffsetFetchRequest()
		request.Group = "g"
		request.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: "t", Partitions: []int32{0}}}
		group := kmsg.NewOffsetFetchRequestGroup()
		group.Group = "g"
		group.Topics = []kmsg.OffsetFetchRequestGroupTopic{{Topic: "t", TopicID: r.topicID("t"), Partitions: []int32{0}}}
		request.Groups = []kmsg.OffsetFetchRequestGroup{group}
		return request
	},
	10: func(*rig, int16, int) kmsg.Request {
		request := kmsg.NewPtrFindCoordinatorRequest()
		request.CoordinatorKey, request.CoordinatorKeys = "g", []string{"g", "h"}
		return request
	},
	15: func(*rig, int16, int) kmsg.Request {
		request := kmsg.NewPtrDescribeGroupsRequest()
		request.Groups, request.IncludeAuthorizedOperations = []string{"g"}, true
		return request
	},
	16: func(*rig, int16, int) kmsg.Request { return kmsg.NewPtrListGroupsRequest() },
	18: func(_ *rig, version int16, _ int) kmsg.Request { return apiVersions(version) },
	19: func(_ *rig, _ int16, n int) kmsg.Request {
		request := kmsg.NewPtrCreateTopicsRequest()
		request.TimeoutMillis = 1000
		topic := kmsg.NewCreateTopicsRequestTopic()
		topic.Topic, topic.NumPartitions, topic.ReplicationFactor = fmt.Sprint("new", n), 2, 1
		topic.Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: "retention.ms", Value: kmsg.StringPtr("1000")}}
		request.Topics = append(request.Topics, topic)
		return request
	},
	20: func(r *rig, _ int16, n int) kmsg.Request {
		name := fmt.Sprint("old", n)
		r.create(name)
		request := kmsg.NewPtrDeleteTopicsRequest()
		request.TimeoutMillis, request.TopicNames = 1000, []string{name}
		request.Topics = []kmsg.DeleteTopicsRequestTopic{{Topic: &name}}
		return request
	},
	21: func(*rig, int16, int) kmsg.Request {
		request := kmsg.NewPtrDeleteRecordsRequest()
		request.TimeoutMillis = 1000
		request.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: "t", Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Offset: 0}}}}
		return request
	},
	22: func(*rig, int16, int) kmsg.Request { return kmsg.NewPtrInitProducerIDRequest() },
	23: func(*rig, int16, int) kmsg.Request {
		request := kmsg.NewPtrOffsetForLeaderEpochRequest()
		p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		request.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{p}}}
		return request
	},
	32: func(*rig, int16, int) kmsg.Request {
		request := kmsg.NewPtrDescribeConfigsRequest()
		request.IncludeSynonyms, request.IncludeDocumentation = true, true
		request.Resources = []kmsg.DescribeConfigsRequestResource{
			{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "t"}, {ResourceType: kmsg.ConfigResourceTypeBroker, ResourceName: "1"},
		}
		return request
	},
	33: func(*rig, int16, int) kmsg.Request {
		request := kmsg.NewPtrAlterConfigsRequest()
		request.Resources = []kmsg.AlterConfigsRequestResource{{
			ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "t",
			Configs: []kmsg.AlterConfigsRequestResourceConfig{{Name: "retention.ms", Value: kmsg.StringPtr("2000")}},
		}}
		return request
	},
	35: func(*rig, int16, int) kmsg.Request { return kmsg.NewPtrDescribeLogDirsRequest() },
	37: func(_ *rig, version int16, _ int) kmsg.Request {
		request := kmsg.NewPtrCreatePartitionsRequest()
		request.TimeoutMillis, request.ValidateOnly = 1000, true
		topic := kmsg.NewCreatePartitionsRequestTopic()
		topic.Topic, topic.Count = "t", 3
		request.Topics = append(request.Topics, topic)
		return request
	},
	44: func(*rig, int16, int) kmsg.Request {
		request := kmsg.NewPtrIncrementalAlterConfigsRequest()
		request.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{
			ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "t",
			Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "retention.ms", Value: kmsg.StringPtr("3000")}},
		}}
		return request
	},
	47: func(*rig, int16, int) kmsg.Request {
		request := kmsg.NewPtrOffsetDeleteRequest()
		request.Group = "g"
		request.Topics = []kmsg.OffsetDeleteRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{}}}}
		return request
	},
	55: func(*rig, int16, int) kmsg.Request {
		request := kmsg.NewPtrDescribeQuorumRequest()
		request.Topics = []kmsg.DescribeQuorumRequestTopic{{
			Topic: "__cluster_metadata", Partitions: []kmsg.DescribeQuorumRequestTopicPartition{{}},
		}}
		return request
	},
	57: func(_ *rig, version int16, _ int) kmsg.Request {
		request := kmsg.NewPtrUpdateFeaturesRequest()
		request.TimeoutMillis = 1000
		update := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
		update.Feature, update.MaxVersionLevel, update.UpgradeType = "metadata.version", 33, 1
		request.FeatureUpdates = append(request.FeatureUpdates, update)
		return request
	},
	60: func(*rig, int16, int) kmsg.Request { return kmsg.NewPtrDescribeClusterRequest() },
	61: func(*rig, int16, int) kmsg.Request {
		request := kmsg.NewPtrDescribeProducersRequest()
		request.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: "t", Partitions: []int32{0}}}
		return request
	},
	74: func(*rig, int16, int) kmsg.Request { return kmsg.NewPtrListConfigResourcesRequest() },
	75: func(*rig, int16, int) kmsg.Request {
		request := kmsg.NewPtrDescribeTopicPartitionsRequest()
		request.ResponsePartitionLimit = 10
		request.Topics = []kmsg.DescribeTopicPartitionsRequestTopic{{Topic: "t"}}
		return request
	},
	// The following speak of members that are not there; their code says so.
	11: func(*rig, int16, int) kmsg.Request {
		request := kmsg.NewPtrJoinGroupRequest()
		request.Group, request.SessionTimeoutMillis, request.RebalanceTimeoutMillis = "joined", 10_000, 10_000
		request.MemberID, request.ProtocolType = "stranger", "consumer"
		request.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte("m")}}
		return request
	},
	12: func(*rig, int16, int) kmsg.Request {
		request := kmsg.NewPtrHeartbeatRequest()
		request.Group, request.MemberID = "g", "stranger"
		return request
	},
	13: func(*rig, int16, int) kmsg.Request {
		request := kmsg.NewPtrLeaveGroupRequest()
		request.Group, request.MemberID = "g", "stranger"
		request.Members = []kmsg.LeaveGroupRequestMember{{MemberID: "stranger"}}
		return request
	},
	14: func(*rig, int16, int) kmsg.Request {
		request := kmsg.NewPtrSyncGroupRequest()
		request.Group, request.MemberID = "g", "stranger"
		request.ProtocolType, request.Protocol = kmsg.StringPtr("consumer"), kmsg.StringPtr("range")
		return request
	},
	42: func(_ *rig, _ int16, _ int) kmsg.Request {
		request := kmsg.NewPtrDeleteGroupsRequest()
		request.Groups = []string{"stranger"}
		return request
	},
}

// expected are the codes of those that can't do without.
var expected = map[int16]wire.Code{
	11: wire.UnknownMemberID, 12: wire.UnknownMemberID, 13: wire.UnknownMemberID, 14: wire.UnknownMemberID, 42: wire.GroupIDNotFound,
}

// withOffsets is a broker with the topic "t" and the group "g", which has committed an offset.
func withOffsets(t *testing.T) *rig {
	t.Helper()
	r := newRig(t)
	r.create("t")
	find := asking[10](r, 0, 0)
	find.SetVersion(3)
	r.until("there is a coordinator", func() bool { return ask[*kmsg.FindCoordinatorResponse](r, find).ErrorCode == 0 })
	commit := asking[8](r, 0, 0)
	commit.SetVersion(5)
	r.until("the coordinator is loaded", func() bool { return codes(ask[*kmsg.OffsetCommitResponse](r, commit))[0] == wire.None })
	return r
}

// Every version of everything that is served answers what the protocol says, with the code that is right.
func TestEveryVersionIsAnswered(t *testing.T) {
	n := 0
	eachVersion(t, func(t *testing.T, e *api.Entry, version int16) {
		r := withOffsets(t)
		n++
		request := asking[int16(e.Key)](r, version, n)
		request.SetVersion(version)
		response := ask[kmsg.Response](r, request)
		want := expected[int16(e.Key)]
		all := codes(response)
		if !slices.Contains(all, want) && (want != wire.None || len(all) > 0) || slices.ContainsFunc(all, func(c wire.Code) bool { return c != want && c != wire.None }) {
			t.Errorf("codes %v", all)
		}
	})
}
