package metadata

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// A broker forwards changes to the controller and answers back: nothing that means something may get lost on the way.
func TestChangesAndAnswersSurviveJSON(t *testing.T) {
	for _, value := range []any{
		&CreateTopics{ValidateOnly: true, Topics: []NewTopic{{
			Name: "a", Partitions: -1, ReplicationFactor: -1, Assignments: []Assignment{{Partition: 1, Replicas: []wire.BrokerID{2}}},
			Configs: []ConfigEntry{{Name: "x", Value: nil}, {Name: "y", Value: ptr("")}},
		}}},
		&DeleteTopics{Topics: []TopicRef{{Name: ptr("")}, {ID: topicA}, {}}},
		&CreatePartitions{Topics: []MorePartitions{{Name: "a", Count: 3, Assignments: nil}, {Name: "b", Assignments: [][]wire.BrokerID{}}}},
		&IncrementalAlterConfigs{Resources: []ResourceOps{{Resource: ConfigResource{BrokerResource, ""}, Ops: []ConfigOp{{Name: "x", Op: 9}}}, {Resource: ConfigResource{77, "x"}}}},
		&AlterConfigs{Resources: []ResourceConfigs{{Resource: ConfigResource{GroupResource, "g"}, Configs: []ConfigEntry{{Name: "x"}}}}},
		&AlterPartition{BrokerID: 1, BrokerEpoch: 2, Partitions: []ISRProposal{{TopicID: topicA, ISR: []ISRMember{{BrokerID: 1, Epoch: -1}}}}},
		&CreateTopicsAnswer{Topics: []CreatedTopic{{Name: "a", ID: topicA, Configs: map[string]string{"x": ""}}, {Name: "b", Result: Result{Code: -1, Message: "m"}}}},
		&DeleteTopicsAnswer{Topics: []DeletedTopic{{Name: nil, ID: topicA}}},
		&AllocateProducerIDsAnswer{First: 0, Length: 1000},
	} {
		data, err := json.Marshal(value)
		if err != nil {
			t.Errorf("%T: %v", value, err)
			continue
		}
		back := reflect.New(reflect.TypeOf(value).Elem()).Interface()
		if err := json.Unmarshal(data, back); err != nil {
			t.Errorf("%T: %v", value, err)
		} else if diff := cmp.Diff(value, back); diff != "" {
			t.Errorf("%T as %s: %s", value, data, diff)
		}
	}
}

func TestResultsKeepCodeAndText(t *testing.T) {
	for _, test := range []struct {
		err  error
		want Result
	}{
		{nil, Result{}},
		{wire.UnknownTopicID, Result{Code: wire.UnknownTopicID}},
		{fmt.Errorf("context: %w", wire.NewError(wire.InvalidConfig, "text")), Result{Code: wire.InvalidConfig, Message: "text"}},
		{errors.New("anything"), Result{Code: wire.UnknownServerError}},
	} {
		if got := ResultOf(test.err); got != test.want {
			t.Errorf("%v became %+v", test.err, got)
		}
	}
}
