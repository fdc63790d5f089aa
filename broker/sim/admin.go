package sim

import (
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// admin creates the topics, and then changes one thing after the other. What it got no answer to is in doubt until a later change
// is answered: then it looks at what became of it.
type admin struct {
	client
	made   int     // topics so far
	out    bool    // a request is on its way
	doubts []doubt // changes without an answer, oldest first
}

// doubt is a change of which nobody knows whether it was made.
type doubt struct {
	topic  *topic
	undone func() // it was not made
	done   func() // it was
	check  func(now *described) (made, known bool)
}

// described is what the broker says of a topic; nil if there is none.
type described struct {
	id         [16]byte
	partitions int
	epochs     map[int32]int32 // of leaders, by partition
	configs    map[string]string
}

func newAdmin(c *cluster) *admin {
	a := &admin{}
	a.client = newClient(c, "admin", a.work)
	a.soon(50 * time.Millisecond)
	return a
}

func (a *admin) waitsFor() string {
	switch {
	case a.out:
		return "admin waits for an answer"
	case len(a.doubts) > 0:
		return "admin does not know what became of a change"
	}
	return ""
}

func (a *admin) work() {
	switch {
	case a.out:
		return
	case !a.connected():
		a.soon(200 * time.Millisecond)
		return
	case len(a.doubts) > 0:
		a.resolve()
		return
	case a.c.healed:
		return
	case len(a.c.ledger.topics) < a.c.plan.topics:
		a.create()
		return
	case !a.c.plan.admin:
		return
	}
	t := a.c.ledger.topics[a.random.IntN(len(a.c.ledger.topics))]
	switch n := a.random.IntN(10); {
	case n < 3:
		a.alter(t)
	case n < 6:
		a.deleteRecords(t)
	case n < 7 && len(t.partitions) < 4:
		a.grow(t)
	case n < 8 && !t.lasting:
		a.delete(t)
	default:
		a.listOffsets(t)
	}
}

// pause is between two requests.
func (a *admin) pause() { a.soon(300 * time.Millisecond) }

// ask sends a request and hands over its answer. lost is called when there is none.
func (a *admin) ask(request kmsg.Request, note string, answered func(kmsg.Response), lost func()) {
	a.out = true
	a.call(request, note, func(response kmsg.Response) {
		a.out = false
		if response == nil {
			lost()
		} else {
			answered(response)
		}
		a.pause()
	})
}

// mayBeMade are the codes after which a change may have been made, or may yet be.
func mayBeMade(c wire.Code) bool {
	return c == wire.RequestTimedOut || c == wire.NotController || c == wire.NetworkException
}

// topicConfigs draws settings for a topic: small segments, and something of each kind that changes what is kept when.
func (a *admin) topicConfigs() map[string]string {
	configs := map[string]string{}
	set := func(sides int, key string, values ...string) {
		if a.random.IntN(sides) == 0 {
			configs[key] = values[a.random.IntN(len(values))]
		}
	}
	set(2, "segment.index.bytes", "24", "64", "256")
	set(3, "segment.ms", "500", "2000", "10000")
	set(4, "flush.messages", "1", "1", "10")
	set(6, "retention.ms", "2000", "8000")
	set(6, "retention.bytes", "2000", "20000")
	set(6, "message.timestamp.type", "LogAppendTime")
	set(6, "compression.type", "gzip", "zstd", "lz4", "snappy", "uncompressed")
	set(6, "compressed.batch.validation", "full", "header")
	a.c.plan.tier.topicConfigs(a.random, configs)
	return configs
}

func (a *admin) create() {
	a.made++
	t := &topic{c: a.c, name: "t" + strconv.Itoa(a.random.IntN(2*a.c.plan.topics)), configs: a.topicConfigs(), lasting: a.made == 1 || a.random.IntN(2) == 0}
	if a.c.ledger.find(t.name) != nil {
		a.pause()
		return
	}
	partitions := 1 + a.random.IntN(3)
	request := kmsg.NewPtrCreateTopicsRequest()
	request.SetVersion(a.version(kmsg.CreateTopics, 2, anyVersion))
	request.TimeoutMillis = int32(100 + a.random.IntN(30_000))
	row := kmsg.NewCreateTopicsRequestTopic()
	row.Topic, row.NumPartitions, row.ReplicationFactor = t.name, int32(partitions), 1
	for _, key := range sortedKeys(t.configs) {
		config := kmsg.NewCreateTopicsRequestTopicConfig()
		config.Name, config.Value = key, kmsg.StringPtr(t.configs[key])
		row.Configs = append(row.Configs, config)
	}
	request.Topics = append(request.Topics, row)
	made := func() {
		a.c.stats.Changes++
		a.c.ledger.add(t, partitions)
	}
	inDoubt := func() {
		a.doubts = append(a.doubts, doubt{
			topic: t, undone: func() {}, done: made,
			check: func(now *described) (bool, bool) {
				if now != nil {
					t.id = now.id
				}
				return now != nil, now == nil || now.partitions == partitions
			},
		})
	}
	a.ask(request, fmt.Sprintf("%s with %d partitions, %v", t.name, partitions, t.configs), func(response kmsg.Response) {
		got := response.(*kmsg.CreateTopicsResponse).Topics[0]
		result := code(got.ErrorCode)
		a.c.trace.add(a.name, "< CreateTopics: %s", result)
		switch {
		case mayBeMade(result):
			inDoubt()
		case result == wire.None:
			t.id = got.TopicID
			if t.id != [16]byte{} {
				made()
			} else { // an old version does not tell it: look it up
				inDoubt()
			}
		default:
			a.c.fail("topic %s is not created: %s", t.name, result)
		}
	}, inDoubt)
}

func (a *admin) delete(t *topic) {
	request := kmsg.NewPtrDeleteTopicsRequest()
	request.SetVersion(a.version(kmsg.DeleteTopics, 1, anyVersion))
	request.TimeoutMillis = int32(100 + a.random.IntN(30_000))
	request.TopicNames = []string{t.name}
	row := kmsg.NewDeleteTopicsRequestTopic()
	row.Topic = kmsg.StringPtr(t.name)
	request.Topics = append(request.Topics, row)
	a.change(t, request, "of "+t.name, func() { a.c.ledger.remove(t) },
		func(r kmsg.Response) int16 { return r.(*kmsg.DeleteTopicsResponse).Topics[0].ErrorCode },
		func(now *described) (bool, bool) { return now == nil, now == nil || now.id == t.id })
}

func (a *admin) grow(t *topic) {
	request := kmsg.NewPtrCreatePartitionsRequest()
	request.SetVersion(a.version(kmsg.CreatePartitions, 0, anyVersion))
	request.TimeoutMillis = int32(100 + a.random.IntN(30_000))
	row := kmsg.NewCreatePartitionsRequestTopic()
	to := len(t.partitions) + 1
	row.Topic, row.Count = t.name, int32(to)
	request.Topics = append(request.Topics, row)
	a.change(t, request, fmt.Sprintf("of %s to %d", t.name, to), func() { t.grow(to) },
		func(r kmsg.Response) int16 { return r.(*kmsg.CreatePartitionsResponse).Topics[0].ErrorCode },
		func(now *described) (bool, bool) {
			return now != nil && now.partitions == to, now != nil && (now.partitions == to || now.partitions == to-1)
		})
}

// alter sets a setting that nothing else here depends on, or one that makes segments roll.
func (a *admin) alter(t *topic) {
	key, value := "max.message.bytes", strconv.Itoa(100_000+a.random.IntN(1000))
	if a.random.IntN(3) == 0 {
		key, value = "segment.ms", strconv.Itoa(200+a.random.IntN(5000))
	}
	before, had := t.configs[key]
	request := kmsg.NewPtrIncrementalAlterConfigsRequest()
	request.SetVersion(a.version(kmsg.IncrementalAlterConfigs, 0, anyVersion))
	row := kmsg.NewIncrementalAlterConfigsRequestResource()
	row.ResourceType, row.ResourceName = kmsg.ConfigResourceTypeTopic, t.name
	config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	config.Name, config.Op, config.Value = key, kmsg.IncrementalAlterConfigOpSet, &value
	row.Configs = append(row.Configs, config)
	request.Resources = append(request.Resources, row)
	a.change(t, request, fmt.Sprintf("%s: %s=%s", t.name, key, value), func() { t.configs[key] = value },
		func(r kmsg.Response) int16 { return r.(*kmsg.IncrementalAlterConfigsResponse).Resources[0].ErrorCode },
		func(now *described) (bool, bool) {
			if now == nil {
				return false, false
			}
			is, has := now.configs[key]
			return is == value, is == value || is == before && has == had
		})
}

// change asks for a change of a topic that is there.
func (a *admin) change(
	t *topic, request kmsg.Request, note string, made func(), result func(kmsg.Response) int16, check func(*described) (bool, bool),
) {
	t.doubt = true
	inDoubt := func() {
		a.doubts = append(a.doubts, doubt{topic: t, undone: func() { t.doubt = false }, done: made, check: check})
	}
	a.ask(request, note, func(response kmsg.Response) {
		got := code(result(response))
		a.c.trace.add(a.name, "< %s: %s", kmsg.NameForKey(request.Key()), got)
		switch {
		case mayBeMade(got):
			inDoubt()
		case got == wire.None:
			t.doubt = false
			a.c.stats.Changes++
			made()
		default:
			a.c.fail("change of %s is refused: %s", t.name, got)
		}
	}, inDoubt)
}

// resolve makes a change that does not matter. Once it is answered, those before it have been made or never will be.
func (a *admin) resolve() {
	request := kmsg.NewPtrIncrementalAlterConfigsRequest()
	request.SetVersion(a.version(kmsg.IncrementalAlterConfigs, 0, anyVersion))
	row := kmsg.NewIncrementalAlterConfigsRequestResource()
	row.ResourceType, row.ResourceName = kmsg.ConfigResourceTypeBroker, "1"
	config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	config.Name, config.Op, config.Value = "log.message.timestamp.after.max.ms", kmsg.IncrementalAlterConfigOpSet,
		kmsg.StringPtr(strconv.Itoa(3_600_000+a.random.IntN(1000)))
	row.Configs = append(row.Configs, config)
	request.Resources = append(request.Resources, row)
	a.ask(request, "to end doubts", func(response kmsg.Response) {
		got := code(response.(*kmsg.IncrementalAlterConfigsResponse).Resources[0].ErrorCode)
		a.c.trace.add(a.name, "< IncrementalAlterConfigs: %s", got)
		if got == wire.None {
			a.endDoubts()
		} else if !mayBeMade(got) {
			a.c.fail("a setting of the broker is refused: %s", got)
		}
	}, func() {})
}

func (a *admin) endDoubts() {
	if a.c.node.engine == nil {
		return // the answer came, and then the broker was gone
	}
	for _, d := range a.doubts {
		made, known := d.check(a.c.describe(d.topic.name))
		a.c.trace.add(a.name, "the change of %s was made: %v", d.topic.name, made)
		if !known {
			a.c.fail("topic %s is neither as it was before a change nor as it would be after", d.topic.name)
		}
		d.topic.doubt = false
		if made {
			d.done()
		} else {
			d.undone()
		}
	}
	a.doubts = nil
}

func (a *admin) deleteRecords(t *topic) {
	p := t.partitions[a.random.IntN(len(t.partitions))]
	offset := int64(-1)
	if a.random.IntN(4) > 0 {
		offset = a.random.Int64N(p.end() + 1)
	}
	request := kmsg.NewPtrDeleteRecordsRequest()
	request.SetVersion(a.version(kmsg.DeleteRecords, 0, anyVersion))
	request.TimeoutMillis = 5000
	row, part := kmsg.NewDeleteRecordsRequestTopic(), kmsg.NewDeleteRecordsRequestTopicPartition()
	row.Topic, part.Partition, part.Offset = t.name, p.index, offset
	row.Partitions = append(row.Partitions, part)
	request.Topics = append(request.Topics, row)
	p.deleted = max(p.deleted, offset)
	if offset < 0 {
		p.deleted = 1 << 62 // whatever the high watermark will be
	}
	a.ask(request, fmt.Sprintf("of %s below %d", p, offset), func(response kmsg.Response) {
		got := response.(*kmsg.DeleteRecordsResponse).Topics[0].Partitions[0]
		a.c.trace.add(a.name, "< DeleteRecords: %s, %d", code(got.ErrorCode), got.LowWatermark)
		if got.ErrorCode != 0 {
			return
		}
		if offset >= 0 && got.LowWatermark < offset {
			a.c.fail("%s begins at %d after records below %d were deleted", p, got.LowWatermark, offset)
		}
		if p.deleted == 1<<62 {
			p.deleted = max(got.LowWatermark, p.start)
		}
		cut := offset
		if offset < 0 {
			cut = got.LowWatermark
		}
		p.start, p.cut = max(p.start, got.LowWatermark), max(p.cut, cut) // what retention took beyond it may be in the bucket yet
	}, func() {})
}

func (a *admin) listOffsets(t *topic) {
	p := t.partitions[a.random.IntN(len(t.partitions))]
	request := kmsg.NewPtrListOffsetsRequest()
	request.SetVersion(a.version(kmsg.ListOffsets, 1, anyVersion))
	row, part := kmsg.NewListOffsetsRequestTopic(), kmsg.NewListOffsetsRequestTopicPartition()
	row.Topic, part.Partition = t.name, p.index
	part.Timestamp = a.c.clock.now.Add(-time.Duration(a.random.IntN(10_000)) * time.Millisecond).UnixMilli()
	row.Partitions = append(row.Partitions, part)
	request.Topics = append(request.Topics, row)
	a.ask(request, fmt.Sprintf("of %s at %d", p, part.Timestamp), func(response kmsg.Response) {
		got := response.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
		a.c.trace.add(a.name, "< ListOffsets: %s, %d at %d", code(got.ErrorCode), got.Offset, got.Timestamp)
		if got.ErrorCode == 0 && got.Offset >= 0 && got.Timestamp < part.Timestamp {
			a.c.fail("%s@%d of time %d is what time %d leads to", p, got.Offset, got.Timestamp, part.Timestamp)
		}
	}, func() {})
}
