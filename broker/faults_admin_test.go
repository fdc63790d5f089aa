package broker_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// newTopic is a topic to create.
func newTopic(name string, edit ...func(*kmsg.CreateTopicsRequestTopic)) kmsg.CreateTopicsRequestTopic {
	row := kmsg.CreateTopicsRequestTopic{Topic: name, NumPartitions: 1, ReplicationFactor: 1}
	for _, f := range edit {
		f(&row)
	}
	return row
}

func setting(name, value string) func(*kmsg.CreateTopicsRequestTopic) {
	return func(row *kmsg.CreateTopicsRequestTopic) {
		row.Configs = append(row.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: name, Value: &value})
	}
}

// assigned puts partitions on brokers.
func assigned(partitions ...kmsg.CreateTopicsRequestTopicReplicaAssignment) func(*kmsg.CreateTopicsRequestTopic) {
	return func(row *kmsg.CreateTopicsRequestTopic) {
		row.NumPartitions, row.ReplicationFactor, row.ReplicaAssignment = -1, -1, partitions
	}
}

func on(partition int32, brokers ...int32) kmsg.CreateTopicsRequestTopicReplicaAssignment {
	return kmsg.CreateTopicsRequestTopicReplicaAssignment{Partition: partition, Replicas: brokers}
}

// createTopic asks for a topic.
func (c *conn) createTopic(v int16, row kmsg.CreateTopicsRequestTopic, validateOnly bool) kmsg.CreateTopicsResponseTopic {
	c.t.Helper()
	request := kmsg.NewPtrCreateTopicsRequest()
	request.ValidateOnly, request.Topics = validateOnly, []kmsg.CreateTopicsRequestTopic{row}
	return ask[*kmsg.CreateTopicsResponse](c, version(v, request)).Topics[0]
}

// partitions is how many partitions a topic has; 0 if there is none.
func (c *conn) partitions(topic string) int {
	c.t.Helper()
	request := kmsg.NewPtrMetadataRequest()
	row := kmsg.NewMetadataRequestTopic()
	row.Topic = &topic
	request.Topics = append(request.Topics, row)
	return len(ask[*kmsg.MetadataResponse](c, version(12, request)).Topics[0].Partitions)
}

func TestTopicFaults(t *testing.T) {
	r := startBroker(t, "auto.create.topics.enable=false")
	c := r.dial()
	r.create("a.b", 1)
	for _, f := range []struct {
		name string
		row  kmsg.CreateTopicsRequestTopic
		want wire.Code
	}{
		{"BO-039 a name that collides", newTopic("a_b"), wire.InvalidTopic},
		{"BO-039 a dot", newTopic("."), wire.InvalidTopic},
		{"BO-039 two dots", newTopic(".."), wire.InvalidTopic},
		{"BO-039 a name of 250 letters", newTopic(strings.Repeat("x", 250)), wire.InvalidTopic},
		{"BO-039 a star", newTopic("a*b"), wire.InvalidTopic},
		{"BO-039 no name", newTopic(""), wire.InvalidTopic},
		{"FM-95 a path", newTopic("../../etc"), wire.InvalidTopic},
		{"FM-95 a name with a zero", newTopic("a\x00b"), wire.InvalidTopic},
		{"FM-95 a name that is no UTF-8", newTopic("a\xffb"), wire.InvalidTopic},
		{"FM-95 a name of 32 KiB", newTopic(strings.Repeat("x", 32<<10-1)), wire.InvalidTopic},
		{"BO-042 brokers that do not exist", newTopic("t", assigned(on(0, 11), on(1, 12), on(2, 13))), wire.InvalidReplicaAssignment},
		{"BO-042 a broker twice", newTopic("t", assigned(on(0, 1, 1))), wire.InvalidReplicaAssignment},
		{"BO-042 a gap between the partitions", newTopic("t", assigned(on(0, 1), on(2, 1))), wire.InvalidReplicaAssignment},
		{"BO-043 an unknown codec", newTopic("t", setting("compression.type", "foo")), wire.InvalidConfig},
		{"BO-043 a policy in capitals", newTopic("t", setting("cleanup.policy", "Compact")), wire.InvalidConfig},
		{"BO-043 a number that is none", newTopic("t", setting("retention.ms", "abc")), wire.InvalidConfig},
		{"BO-044 a key that nobody knows", newTopic("t", setting("prefix", "x")), wire.InvalidConfig},
	} {
		t.Run(f.name, func(t *testing.T) {
			for v := int16(2); v <= 7; v++ {
				for _, validateOnly := range []bool{true, false} {
					got := c.createTopic(v, f.row, validateOnly)
					if wire.Code(got.ErrorCode) != f.want {
						t.Errorf("version %d, validate only %v: %v", v, validateOnly, wire.Code(got.ErrorCode))
					}
					if got.ErrorMessage == nil || *got.ErrorMessage == "" {
						t.Errorf("version %d: no message", v)
					}
				}
			}
			if c.partitions("t") > 0 {
				t.Error("it is there")
			}
		})
	}
	t.Run("BO-041 an empty list of assignments", func(t *testing.T) {
		r.create("grows", 3)
		for v := range int16(4) {
			request := kmsg.NewPtrCreatePartitionsRequest()
			request.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: "grows", Count: int32(c.partitions("grows") + 3), Assignment: []kmsg.CreatePartitionsRequestTopicAssignment{}}}
			before := c.partitions("grows")
			if row := ask[*kmsg.CreatePartitionsResponse](c, version(v, request)).Topics[0]; wire.Code(row.ErrorCode) != wire.InvalidReplicaAssignment || c.partitions("grows") != before {
				t.Errorf("version %d: %v, %d partitions", v, wire.Code(row.ErrorCode), c.partitions("grows"))
			}
			request.Topics[0].Assignment = nil
			if row := ask[*kmsg.CreatePartitionsResponse](c, version(v, request)).Topics[0]; row.ErrorCode != 0 || c.partitions("grows") != before+3 {
				t.Errorf("version %d: null: %v, %d partitions", v, wire.Code(row.ErrorCode), c.partitions("grows"))
			}
		}
	})
	t.Run("BO-040 deleted and made again", func(t *testing.T) {
		ms := time.Now().UnixMilli()
		r.create("again", 1)
		former := r.topicID("again")
		for range 10 {
			c.produce(9, "again", batchOf(t, record.Builder{}, ms))
		}
		g := r.group("again-group")
		g.commit(9, "again", 7, nil)
		deletion := kmsg.NewPtrDeleteTopicsRequest()
		deletion.TopicNames = []string{"again"}
		ask[*kmsg.DeleteTopicsResponse](c, version(5, deletion))
		r.create("again", 1)
		for i := range int64(5) {
			if row := c.produce(9, "again", batchOf(t, record.Builder{}, ms)); row.BaseOffset != i {
				t.Errorf("record %d is at %d", i, row.BaseOffset)
			}
		}
		read := ask[*kmsg.FetchResponse](c, version(12, fetchOf(0, "again"))).Topics[0].Partitions[0]
		if r.topicID("again") == former || read.HighWatermark != 5 || record.Batch(read.RecordBatches).LeaderEpoch() != 0 {
			t.Errorf("high watermark %d, leader epoch %d", read.HighWatermark, record.Batch(read.RecordBatches).LeaderEpoch())
		}
		if row := g.fetch(7, "again"); row.Offset != -1 {
			t.Errorf("the offset of the former topic is %d", row.Offset)
		}
	})
	t.Run("BO-044 what Kafka knows", func(t *testing.T) {
		for key, value := range map[string]string{
			"min.insync.replicas": "2", "unclean.leader.election.enable": "true", "preallocate": "true", "flush.messages": "9",
			"segment.jitter.ms": "5", "index.interval.bytes": "1024",
		} {
			name := "with-" + key
			r.create(name, 1, key+"="+value)
			request := kmsg.NewPtrDescribeConfigsRequest()
			request.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: name, ConfigNames: []string{key}}}
			rows := ask[*kmsg.DescribeConfigsResponse](c, version(4, request)).Resources[0].Configs
			if len(rows) != 1 || *rows[0].Value != value || rows[0].Source != kmsg.ConfigSourceDynamicTopicConfig {
				t.Errorf("%s: %+v", key, rows)
			}
		}
	})
	r.create("still-serving", 1)
	r.wantServing()
}

func TestConfigFaults(t *testing.T) {
	r := startBroker(t)
	c := r.dial()
	describe := func(topic string) map[string]kmsg.DescribeConfigsResponseResourceConfig {
		request := kmsg.NewPtrDescribeConfigsRequest()
		request.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: topic}}
		all := map[string]kmsg.DescribeConfigsResponseResourceConfig{}
		for _, row := range ask[*kmsg.DescribeConfigsResponse](c, version(4, request)).Resources[0].Configs {
			row.Documentation = nil
			all[row.Name] = row
		}
		return all
	}
	alter := func(topic string, rows ...kmsg.AlterConfigsRequestResourceConfig) wire.Code {
		request := kmsg.NewPtrAlterConfigsRequest()
		request.Resources = []kmsg.AlterConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: topic, Configs: rows}}
		return wire.Code(ask[*kmsg.AlterConfigsResponse](c, version(1, request)).Resources[0].ErrorCode)
	}
	change := func(topic, key string, op kmsg.IncrementalAlterConfigOp, value string) wire.Code {
		request := kmsg.NewPtrIncrementalAlterConfigsRequest()
		request.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{
			ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: topic,
			Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: key, Op: op, Value: &value}},
		}}
		return wire.Code(ask[*kmsg.IncrementalAlterConfigsResponse](c, version(1, request)).Resources[0].ErrorCode)
	}

	t.Run("BO-045 what is described can be set", func(t *testing.T) {
		r.create("described", 1, "retention.ms=5000", "cleanup.policy=compact,delete")
		before := describe("described")
		var rows []kmsg.AlterConfigsRequestResourceConfig
		for name, row := range before {
			if row.ReadOnly {
				t.Errorf("%s of a topic is read-only", name)
			}
			rows = append(rows, kmsg.AlterConfigsRequestResourceConfig{Name: name, Value: row.Value})
			if code := change("described", name, kmsg.IncrementalAlterConfigOpSet, *row.Value); code != wire.None {
				t.Errorf("%s: %v", name, code)
			}
		}
		if code := alter("described", rows...); code != wire.None {
			t.Errorf("all: %v", code)
		}
		after := describe("described")
		for name, row := range before {
			if *row.Value != *after[name].Value {
				t.Errorf("%s was %s, is %s", name, *row.Value, *after[name].Value)
			}
		}
	})
	t.Run("BO-046 AlterConfigs replaces, IncrementalAlterConfigs changes", func(t *testing.T) {
		r.create("altered", 1, "retention.ms=5000", "segment.bytes=2000000")
		value := "6000"
		if code := alter("altered", kmsg.AlterConfigsRequestResourceConfig{Name: "retention.ms", Value: &value}); code != wire.None {
			t.Fatal(code)
		}
		all := describe("altered")
		if *all["retention.ms"].Value != "6000" || all["segment.bytes"].Source == kmsg.ConfigSourceDynamicTopicConfig {
			t.Errorf("retention %s, segment %s", *all["retention.ms"].Value, *all["segment.bytes"].Value)
		}
		for _, step := range []struct {
			key   string
			op    kmsg.IncrementalAlterConfigOp
			value string
			want  wire.Code
			is    string
		}{
			{"segment.bytes", kmsg.IncrementalAlterConfigOpSet, "3000000", wire.None, "3000000"},
			{"cleanup.policy", kmsg.IncrementalAlterConfigOpAppend, "compact", wire.None, "delete,compact"},
			{"cleanup.policy", kmsg.IncrementalAlterConfigOpSubtract, "delete", wire.None, "compact"},
			{"retention.ms", kmsg.IncrementalAlterConfigOpAppend, "1", wire.InvalidConfig, "6000"},
			{"segment.bytes", kmsg.IncrementalAlterConfigOpDelete, "", wire.None, "1073741824"},
		} {
			if code := change("altered", step.key, step.op, step.value); code != step.want {
				t.Errorf("%s %d %s: %v", step.key, step.op, step.value, code)
			}
			all := describe("altered")
			got := strings.Split(*all[step.key].Value, ",")
			slices.Sort(got)
			want := strings.Split(step.is, ",")
			slices.Sort(want)
			if !slices.Equal(got, want) || *all["retention.ms"].Value != "6000" {
				t.Errorf("%s %d %s: is %v; retention %s", step.key, step.op, step.value, got, *all["retention.ms"].Value)
			}
		}
	})
	r.wantServing()
}

func TestMetadataFaults(t *testing.T) {
	for _, f := range []struct {
		broker, client, created bool
	}{{true, true, true}, {true, false, false}, {false, true, false}, {false, false, false}} {
		t.Run(fmt.Sprintf("BO-036 the broker creates %v and the client asks for it %v", f.broker, f.client), func(t *testing.T) {
			r := startBroker(t, fmt.Sprintf("auto.create.topics.enable=%v", f.broker))
			c := r.dial()
			if row := c.produce(9, "absent", batchOf(t, record.Builder{}, 1)); wire.Code(row.ErrorCode) != wire.UnknownTopicOrPartition {
				t.Errorf("produce: %v", wire.Code(row.ErrorCode))
			}
			name := "absent"
			request := kmsg.NewPtrMetadataRequest()
			row := kmsg.NewMetadataRequestTopic()
			row.Topic = &name
			request.Topics, request.AllowAutoTopicCreation = append(request.Topics, row), f.client
			first := ask[*kmsg.MetadataResponse](c, version(8, request))
			if code := wire.Code(first.Topics[0].ErrorCode); !f.created && code != wire.UnknownTopicOrPartition {
				t.Errorf("%v", code)
			}
			if f.created {
				eventually(t, "the topic is there", func() bool { return c.partitions(name) == 1 })
			} else if c.partitions(name) > 0 {
				t.Error("it was created")
			}
			if len(first.Brokers) != 1 || first.ControllerID != first.Brokers[0].NodeID || fmt.Sprintf("%s:%d", first.Brokers[0].Host, first.Brokers[0].Port) != r.addr { // BO-038
				t.Errorf("brokers %+v, controller %d, asked at %s", first.Brokers, first.ControllerID, r.addr)
			}
		})
	}
	t.Run("BO-037 empty and null", func(t *testing.T) {
		r := startBroker(t)
		r.create("one", 1)
		c := r.dial()
		for v := range int16(14) {
			request := kmsg.NewPtrMetadataRequest()
			if request.Topics = []kmsg.MetadataRequestTopic{}; v == 0 {
				if n := len(ask[*kmsg.MetadataResponse](c, version(v, request)).Topics); n != 1 {
					t.Errorf("version 0, empty: %d topics", n)
				}
				continue
			}
			if n := len(ask[*kmsg.MetadataResponse](c, version(v, request)).Topics); n != 0 {
				t.Errorf("version %d, empty: %d topics", v, n)
			}
			request.Topics = nil
			if n := len(ask[*kmsg.MetadataResponse](c, version(v, request)).Topics); n != 1 {
				t.Errorf("version %d, null: %d topics", v, n)
			}
		}
	})
}
