package controller

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// oneBroker is an active controller whose only broker, 1, is unfenced and has one topic, "a".
func oneBroker(t *testing.T, settings ...string) *Controller {
	t.Helper()
	c := newController(t, settings...)
	c.Elected(start, metadata.Empty(), 1)
	c.Step(start, registration(1, "i", "boot", "", "cluster", -1, nil))
	beat(c, 1)
	created := c.Step(start, &metadata.CreateTopics{Topics: []metadata.NewTopic{{Name: "a", Partitions: 1, ReplicationFactor: 1}}})
	if row := created.Answer.(*metadata.CreateTopicsAnswer).Topics[0]; row.Result.Code != wire.None {
		t.Fatal(row.Result)
	}
	return c
}

func beat(c *Controller, id wire.BrokerID) *metadata.BrokerHeartbeatAnswer {
	return c.Step(start, &metadata.BrokerHeartbeat{
		BrokerID: id, BrokerEpoch: c.Image().Broker(id).Epoch, MetadataOffset: c.Image().Offset(),
	}).Answer.(*metadata.BrokerHeartbeatAnswer)
}

func topicA() metadata.ConfigResource {
	return metadata.ConfigResource{Type: metadata.TopicResource, Name: "a"}
}

func TestBO045EveryConfigOfATopicCanBeSentBack(t *testing.T) {
	c := oneBroker(t)
	var set []metadata.ConfigEntry
	var ops []metadata.ConfigOp
	described := config.DescribeTopic(c.config, nil)
	for _, entry := range described {
		set = append(set, metadata.ConfigEntry{Name: entry.Name, Value: entry.Value})
		ops = append(ops, metadata.ConfigOp{Name: entry.Name, Op: metadata.SetConfig, Value: entry.Value})
	}
	for name, change := range map[string]metadata.Change{
		"AlterConfigs":            &metadata.AlterConfigs{Resources: []metadata.ResourceConfigs{{Resource: topicA(), Configs: set}}},
		"IncrementalAlterConfigs": &metadata.IncrementalAlterConfigs{Resources: []metadata.ResourceOps{{Resource: topicA(), Ops: ops}}},
	} {
		if row := c.Step(start, change).Answer.(*metadata.AlterConfigsAnswer).Resources[0]; row.Result.Code != wire.None {
			t.Errorf("%s: %v", name, row.Result)
		}
	}
	for i, entry := range config.DescribeTopic(c.config, c.Image().Configs(topicA())) {
		if *entry.Value != *described[i].Value {
			t.Errorf("%s was %s, is %s", entry.Name, *described[i].Value, *entry.Value)
		}
	}
}

func setConfig(c *Controller, r metadata.ConfigResource, name, value string) metadata.Result {
	return c.Step(start, &metadata.IncrementalAlterConfigs{Resources: []metadata.ResourceOps{
		{Resource: r, Ops: []metadata.ConfigOp{{Name: name, Op: metadata.SetConfig, Value: &value}}},
	}}).Answer.(*metadata.AlterConfigsAnswer).Resources[0].Result
}

// A topic that is tiered by default has data in the bucket, as one that says so has: switched off without a word about that, it is refused.
func TestATopicThatIsTieredByDefaultIsNotSwitchedOffByAccident(t *testing.T) {
	c := oneBroker(t, "tier.enable=true")
	if got := setConfig(c, topicA(), "remote.storage.enable", "false"); got.Code != wire.InvalidConfig || !strings.Contains(got.Message, "It is invalid to disable remote storage") {
		t.Errorf("switched off: %v", got)
	}
	if got := setConfig(c, topicA(), "remote.log.delete.on.disable", "true"); got.Code != wire.None {
		t.Errorf("%v", got)
	}
	if got := setConfig(c, topicA(), "remote.storage.enable", "false"); got.Code != wire.None {
		t.Errorf("switched off with its data: %v", got)
	}
}

func TestTopicsAreJudgedUnderTheDynamicConfigsOfBrokers(t *testing.T) {
	c := oneBroker(t)
	all := metadata.ConfigResource{Type: metadata.BrokerResource}
	if r := setConfig(c, topicA(), "min.compaction.lag.ms", "10"); r.Code != wire.None {
		t.Fatal(r)
	}
	if r := setConfig(c, all, "log.cleaner.max.compaction.lag.ms", "5"); r.Code != wire.None {
		t.Fatal(r)
	}
	if r := setConfig(c, topicA(), "retention.ms", "1"); r.Code != wire.InvalidConfig {
		t.Errorf("min above max: %v", r)
	}
	if r := setConfig(c, all, "log.cleaner.max.compaction.lag.ms", "50"); r.Code != wire.None {
		t.Fatal(r)
	}
	if r := setConfig(c, topicA(), "retention.ms", "1"); r.Code != wire.None {
		t.Errorf("min below max: %v", r)
	}
}

func TestConfigsAreBounded(t *testing.T) {
	c := oneBroker(t)
	all := metadata.ConfigResource{Type: metadata.BrokerResource}
	if r := setConfig(c, all, "x", strings.Repeat("x", configValueMax)); r.Code != wire.None {
		t.Errorf("longest value: %v", r)
	}
	if r := setConfig(c, all, "x", strings.Repeat("x", configValueMax+1)); r.Code != wire.InvalidConfig {
		t.Errorf("longer value: %v", r)
	}
	many := metadata.ResourceOps{Resource: all}
	for range requestRecordsMax + 1 {
		many.Ops = append(many.Ops, metadata.ConfigOp{Name: "x", Op: metadata.DeleteConfig})
	}
	answer := c.Step(start, &metadata.IncrementalAlterConfigs{Resources: []metadata.ResourceOps{many, {Resource: topicA()}}}).Answer.(*metadata.AlterConfigsAnswer)
	for _, row := range answer.Resources {
		if row.Result.Code != wire.PolicyViolation {
			t.Errorf("%v of a request with too many operations: %v", row.Resource, row.Result)
		}
	}
}

// A change is one entry of the chain, and that has a size: what can't fit is refused, or the controller could never commit again.
func TestConfigsOfOneRequestFitIntoAnEntry(t *testing.T) {
	c := oneBroker(t)
	long := strings.Repeat("x", configValueMax)
	ops := func(n int) (ops metadata.ResourceOps) {
		ops.Resource = metadata.ConfigResource{Type: metadata.BrokerResource}
		for i := range n {
			ops.Ops = append(ops.Ops, metadata.ConfigOp{Name: fmt.Sprint("x", i), Op: metadata.SetConfig, Value: &long})
		}
		return ops
	}
	for n, want := range map[int]wire.Code{requestTextMax/configValueMax - 1: wire.None, requestTextMax/configValueMax + 1: wire.PolicyViolation} {
		outcome := c.Step(start, &metadata.IncrementalAlterConfigs{Resources: []metadata.ResourceOps{ops(n)}})
		if r := outcome.Answer.(*metadata.AlterConfigsAnswer).Resources[0].Result; r.Code != want || (len(outcome.Records) > 0) != (want == wire.None) {
			t.Errorf("%d long configs: %v, %d records", n, r, len(outcome.Records))
		}
	}

	replicas := strings.Repeat("0:0,", 1000) + "0:0"
	var topics []metadata.NewTopic
	for i := range 2 * requestTextMax / len(replicas) {
		topics = append(topics, metadata.NewTopic{
			Name: fmt.Sprint("t", i), Partitions: 1, ReplicationFactor: 1,
			Configs: []metadata.ConfigEntry{{Name: "leader.replication.throttled.replicas", Value: &replicas}},
		})
	}
	outcome := c.Step(start, &metadata.CreateTopics{Topics: topics})
	if r := outcome.Answer.(*metadata.CreateTopicsAnswer).Topics[0].Result; r.Code != wire.PolicyViolation || len(outcome.Records) > 0 {
		t.Errorf("topics with long configs: %v, %d records", r, len(outcome.Records))
	}
}

// Both few topics with texts of which JSON makes six times as much, and many with as many configs as there are.
func TestTopicsOfOneRequestFitIntoAnEntry(t *testing.T) {
	c := oneBroker(t)
	change := &metadata.CreateTopics{}
	add := func(name string, configs ...metadata.ConfigEntry) {
		change.Topics = append(change.Topics, metadata.NewTopic{Name: name, Partitions: 1, ReplicationFactor: 1, Configs: configs})
	}
	var all []metadata.ConfigEntry
	for _, entry := range config.DescribeTopic(c.config, nil) {
		all = append(all, metadata.ConfigEntry{Name: entry.Name, Value: entry.Value})
	}
	for i := range 240 {
		add(fmt.Sprintf("%0249d", i), all...)
	}
	blank := strings.Repeat("\x01", configValueMax-1) + "1"
	for i := range 22 {
		add(fmt.Sprint(i), metadata.ConfigEntry{Name: "retention.ms", Value: &blank})
	}
	outcome := c.Step(start, change)
	rows := outcome.Answer.(*metadata.CreateTopicsAnswer).Topics
	if len(outcome.Records) > 0 || len(rows) != len(change.Topics) {
		t.Errorf("%d records, %d rows", len(outcome.Records), len(rows))
	}
	for _, row := range rows {
		if row.Result.Code != wire.PolicyViolation {
			t.Fatal(row.Result)
		}
	}
	change.Topics = change.Topics[:240]
	if outcome := c.Step(start, change); len(outcome.Records) != 240*(1+len(all)+1) {
		t.Errorf("of 240 topics %d records", len(outcome.Records))
	}
}

// What leads to no records costs time all the same.
func TestALargeRequestIsRefusedBeforeItIsLookedAt(t *testing.T) {
	c := oneBroker(t)
	junk := strings.Repeat("x,", configValueMax/2)
	topics := func(n int, configs ...metadata.ConfigEntry) (topics []metadata.NewTopic) {
		for i := range n {
			topics = append(topics, metadata.NewTopic{Name: fmt.Sprint(i), ReplicationFactor: 1, Configs: configs})
		}
		return topics
	}
	resource := func(i int) metadata.ConfigResource {
		return metadata.ConfigResource{Type: metadata.TopicResource, Name: fmt.Sprint(i)}
	}
	replace, alter := &metadata.AlterConfigs{}, &metadata.IncrementalAlterConfigs{}
	for i := range requestRecordsMax + 1 {
		replace.Resources = append(replace.Resources, metadata.ResourceConfigs{Resource: resource(i)})
		alter.Resources = append(alter.Resources, metadata.ResourceOps{Resource: resource(i)})
	}
	for name, change := range map[string]metadata.Change{
		"topics without partitions":     &metadata.CreateTopics{Topics: topics(requestRecordsMax + 1)},
		"topics with configs of no use": &metadata.CreateTopics{Topics: topics(100, metadata.ConfigEntry{Name: "cleanup.policy", Value: &junk})},
		"resources without configs":     replace,
		"resources without changes":     alter,
	} {
		outcome := c.Step(start, change)
		var results []metadata.Result
		switch answer := outcome.Answer.(type) {
		case *metadata.CreateTopicsAnswer:
			for _, row := range answer.Topics {
				results = append(results, row.Result)
			}
		case *metadata.AlterConfigsAnswer:
			for _, row := range answer.Resources {
				results = append(results, row.Result)
			}
		}
		other := slices.IndexFunc(results, func(r metadata.Result) bool { return r.Code != wire.PolicyViolation })
		if len(results) == 0 || other >= 0 || len(outcome.Records) > 0 {
			t.Errorf("%s: %d results, the first that is no POLICY_VIOLATION is %d; %d records", name, len(results), other, len(outcome.Records))
		}
	}
}

// The names of the resources are in the entry as often as there are records of them.
func TestNamesOfResourcesFitIntoAnEntry(t *testing.T) {
	c := oneBroker(t)
	change := &metadata.IncrementalAlterConfigs{}
	value := "50000"
	for i := range 200 {
		change.Resources = append(change.Resources, metadata.ResourceOps{
			Resource: metadata.ConfigResource{Type: metadata.GroupResource, Name: fmt.Sprint(i, strings.Repeat("g", 32_000))},
			Ops:      []metadata.ConfigOp{{Name: "consumer.session.timeout.ms", Op: metadata.SetConfig, Value: &value}},
		})
	}
	outcome := c.Step(start, change)
	if len(outcome.Records) > 0 {
		t.Errorf("%d records", len(outcome.Records))
	}
	for _, row := range outcome.Answer.(*metadata.AlterConfigsAnswer).Resources {
		if row.Result.Code != wire.PolicyViolation {
			t.Fatal(row.Result)
		}
	}
	change.Resources = change.Resources[:20]
	if outcome := c.Step(start, change); len(outcome.Records) != 20 {
		t.Errorf("of 20 names %d records", len(outcome.Records))
	}
}

func TestDeletionsOfOneRequestFitIntoAnEntry(t *testing.T) {
	c := oneBroker(t)
	name, none := "a", "none"
	removal := &metadata.DeleteTopics{Topics: []metadata.TopicRef{{Name: &name}}}
	for range requestRecordsMax {
		removal.Topics = append(removal.Topics, metadata.TopicRef{Name: &none})
	}
	outcome := c.Step(start, removal)
	rows := outcome.Answer.(*metadata.DeleteTopicsAnswer).Topics
	if len(outcome.Records) > 0 || len(rows) != len(removal.Topics) {
		t.Errorf("%d records, %d rows", len(outcome.Records), len(rows))
	}
	for _, row := range rows {
		if row.Result.Code != wire.PolicyViolation {
			t.Fatal(row.Result)
		}
	}
	removal.Topics = removal.Topics[:requestRecordsMax]
	if outcome := c.Step(start, removal); len(outcome.Records) == 0 {
		t.Error("nothing is deleted")
	}
}

// A log that is JSON can't hold other bytes: they would come back from it as others.
func TestTextsOfChangesBecomeUTF8(t *testing.T) {
	c := oneBroker(t)
	if r := setConfig(c, metadata.ConfigResource{Type: metadata.BrokerResource}, "x\xff", "y\xff"); r.Code != wire.None {
		t.Fatal(r)
	}
	if got := c.Image().Configs(metadata.ConfigResource{Type: metadata.BrokerResource})["x\uFFFD"]; got != "y\uFFFD" {
		t.Errorf("stored as %q", got)
	}
	if r := setConfig(c, metadata.ConfigResource{Type: metadata.GroupResource, Name: "\xff"}, "consumer.session.timeout.ms", "46000"); r.Code != wire.None {
		t.Error(r)
	}
	bad := registration(2, "i\xff", "boot", "", "cluster", -1, nil)
	if r := c.Step(start, bad).Answer.(*metadata.RegisterBrokerAnswer).Result; r.Code != wire.InvalidRegistration {
		t.Errorf("registration: %v", r)
	}
}

// What a broker may have lost with the power it can't vouch for: it leaves the ELR. What it lost with a directory, too.
func TestSafety11PowerLossLeavesTheELR(t *testing.T) {
	for name, test := range map[string]struct {
		was, boot   string
		clean       int
		directories []string
		stays       bool
	}{
		"clean stop, other boot":         {"boot", "other", 0, []string{"d2"}, true},
		"process died, same boot":        {"boot", "boot", -1, []string{"d2"}, true},
		"other boot":                     {"boot", "other", -1, []string{"d2"}, false},
		"unknown boot":                   {"boot", "", -1, []string{"d2"}, false},
		"unknown boot twice":             {"", "", -1, []string{"d2"}, false},
		"clean stop of an earlier epoch": {"boot", "other", -2, []string{"d2"}, false},
		"directory gone":                 {"boot", "boot", 0, []string{"new"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := oneBroker(t)
			c.Step(start, registration(2, "i", test.was, "", "cluster", -1, nil))
			id, epoch := c.Image().Topic("a").ID, c.Image().Broker(2).Epoch
			image, _, err := c.Image().Apply(c.Image().Offset()+1, []metadata.Record{&metadata.PartitionRecord{TopicID: id, Index: 1, Partition: metadata.Partition{
				Replicas: []wire.BrokerID{1, 2}, Directories: []string{"d1", "d2"}, ISR: []wire.BrokerID{1}, ELR: []wire.BrokerID{2}, Leader: 1,
			}}})
			if err != nil {
				t.Fatal(err)
			}
			c.Elected(start, image, 2)
			c.Step(start, registration(2, "again", test.boot, "", "cluster", int(epoch)+test.clean, test.directories))
			if stays := slices.Contains(c.Image().Partition("a", 1).ELR, 2); stays != test.stays {
				t.Errorf("ELR %v", c.Image().Partition("a", 1).ELR)
			}
		})
	}
}

// A broker that is fenced has no session that could speak against its next incarnation.
func TestAFencedBrokerMayRegisterAgainAtOnce(t *testing.T) {
	c := oneBroker(t)
	c.Step(start, registration(2, "i", "boot", "", "cluster", -1, nil))
	if r := c.Step(start, registration(2, "again", "boot", "", "cluster", -1, nil)).Answer.(*metadata.RegisterBrokerAnswer); r.Result.Code != wire.None {
		t.Error(r.Result)
	}
	beat(c, 2)
	if r := c.Step(start, registration(2, "third", "boot", "", "cluster", -1, nil)).Answer.(*metadata.RegisterBrokerAnswer); r.Result.Code != wire.DuplicateBrokerRegistration {
		t.Errorf("while the second lives: %v", r.Result)
	}
}

func TestControlledShutdownGoesOnUnderAnotherController(t *testing.T) {
	c := oneBroker(t)
	c.Step(start, registration(2, "i", "boot", "", "cluster", -1, nil))
	beat(c, 2)
	leave := func() *metadata.BrokerHeartbeatAnswer {
		return c.Step(start, &metadata.BrokerHeartbeat{
			BrokerID: 2, BrokerEpoch: c.Image().Broker(2).Epoch, MetadataOffset: c.Image().Offset(), WantShutdown: true,
		}).Answer.(*metadata.BrokerHeartbeatAnswer)
	}
	if leave().ShouldShutdown {
		t.Fatal("stopped before the other broker knows")
	}
	committed := c.Image()
	c.Resign()
	c.Elected(start, committed, 2)
	if leave().ShouldShutdown {
		t.Fatal("stopped before the other broker was heard")
	}
	beat(c, 1)
	if answer := leave(); !answer.ShouldShutdown || !answer.Fenced {
		t.Errorf("%+v", answer)
	}
}

func TestSafety05ResignDropsWhatIsNotCommitted(t *testing.T) {
	c := oneBroker(t)
	committed := c.Image()
	c.Step(start, &metadata.CreateTopics{Topics: []metadata.NewTopic{{Name: "lost", Partitions: 1, ReplicationFactor: 1}}})
	if c.Image().Topic("lost") == nil || committed.Topic("lost") != nil {
		t.Fatal("the topic should be in the speculative image alone")
	}
	c.Resign()
	if c.Active() || c.Image() != nil || c.Tick(start) != nil || !c.NextWake().IsZero() || c.Isolated(start) {
		t.Error("still active")
	}
	records := c.Elected(start, committed, 7)
	if first, ok := records[0].(*metadata.ControllerElectedRecord); !ok || first.Epoch != 7 || len(records) != 1 {
		t.Errorf("first records %v", records)
	}
	if c.Image().Topic("lost") != nil {
		t.Error("the lost topic is back")
	}
}

func TestFeaturesNeedEveryBroker(t *testing.T) {
	c := oneBroker(t)
	old := registration(2, "i", "boot", "", "cluster", -1, nil)
	old.Features = []metadata.SupportedFeature{{Name: metadata.MetadataVersion, Min: 7, Max: 32}}
	if r := c.Step(start, old).Answer.(*metadata.RegisterBrokerAnswer).Result; r.Code != wire.UnsupportedVersion {
		t.Errorf("registration below the finalised level: %v", r)
	}
	image, _, err := c.Image().Apply(c.Image().Offset()+1, []metadata.Record{
		&metadata.FeatureLevelRecord{Name: metadata.MetadataVersion, Level: 30},
		&metadata.BrokerRegistrationRecord{Broker: metadata.Broker{ID: 2, Epoch: wire.BrokerEpoch(c.Image().Offset() + 2), Features: old.Features}},
	})
	if err != nil {
		t.Fatal(err)
	}
	c.Elected(start, image, 2)
	update := func(level int16) metadata.Result {
		return c.Step(start, &metadata.UpdateFeatures{Updates: []metadata.FeatureUpdate{
			{Name: metadata.MetadataVersion, Level: level, Type: metadata.Upgrade},
		}}).Answer.(*metadata.UpdateFeaturesAnswer).Result
	}
	if r := update(33); r.Code != wire.InvalidUpdateVersion || !strings.Contains(r.Message, "Broker 2 only supports versions 7-32") {
		t.Errorf("level that broker 2 doesn't know: %v", r)
	}
	if r := update(32); r.Code != wire.None || c.Image().Features().Level(metadata.MetadataVersion) != 32 {
		t.Errorf("level that all know: %v", r)
	}
}

func TestProducerIDsEndBeforeTheyWrap(t *testing.T) {
	c := oneBroker(t)
	image, _, err := c.Image().Apply(c.Image().Offset()+1, []metadata.Record{&metadata.ProducerIDBlockRecord{BrokerID: 1, NextProducerID: math.MaxInt64 - 1500}})
	if err != nil {
		t.Fatal(err)
	}
	c.Elected(start, image, 2)
	allocate := func() *metadata.AllocateProducerIDsAnswer {
		return c.Step(start, &metadata.AllocateProducerIDs{BrokerID: 1, BrokerEpoch: c.Image().Broker(1).Epoch}).Answer.(*metadata.AllocateProducerIDsAnswer)
	}
	if a := allocate(); a.Result.Code != wire.None || a.First != math.MaxInt64-1500 {
		t.Errorf("last block: %+v", a)
	}
	if a := allocate(); a.Result.Code != wire.UnknownServerError || a.Length != 0 {
		t.Errorf("after the last block: %+v", a)
	}
}
