package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// Entry is one row of the table of what is served.
type Entry struct {
	Key      wire.APIKey
	Name     string // as in the protocol's documentation
	Min, Max int16  // versions that are served, both inclusive
	handle   handler
}

// handler answers one request, at once or later: it sees to it that c.answer, or one of its kin, is called exactly once.
type handler func(s *Server, c *call, body []byte)

// advertisedMin is the lowest version that ApiVersions announces. Produce is announced from 0 although 0 to 2 are refused:
// librdkafka takes a broker that announces more for one that knows no compression (KAFKA-18659).
func (e *Entry) advertisedMin() int16 {
	if e.Key == keyProduce {
		return 0
	}
	return e.Min
}

// The keys that code refers to by name.
const (
	keyProduce     wire.APIKey = 0
	keyApiVersions wire.APIKey = 18
)

// table is what is served, by ascending key. Versions are those that Kafka 4.4 accepts.
var table = []Entry{
	{0, "Produce", 3, 13, typed(handleProduce)},
	{1, "Fetch", 4, 18, typed(handleFetch)},
	{2, "ListOffsets", 1, 11, typed(handleListOffsets)},
	{3, "Metadata", 0, 13, typed(handleMetadata)},
	{8, "OffsetCommit", 2, 10, typed(handleOffsetCommit)},
	{9, "OffsetFetch", 1, 10, typed(handleOffsetFetch)},
	{10, "FindCoordinator", 0, 6, typed(handleFindCoordinator)},
	{11, "JoinGroup", 0, 9, typed(handleJoinGroup)},
	{12, "Heartbeat", 0, 4, typed(handleHeartbeat)},
	{13, "LeaveGroup", 0, 5, typed(handleLeaveGroup)},
	{14, "SyncGroup", 0, 5, typed(handleSyncGroup)},
	{15, "DescribeGroups", 0, 6, typed(handleDescribeGroups)},
	{16, "ListGroups", 0, 5, typed(handleListGroups)},
	{18, "ApiVersions", 0, 5, handleAPIVersions},
	{19, "CreateTopics", 2, 7, typed(handleCreateTopics)},
	{20, "DeleteTopics", 1, 6, typed(handleDeleteTopics)},
	{21, "DeleteRecords", 0, 2, typed(handleDeleteRecords)},
	{22, "InitProducerId", 0, 5, typed(handleInitProducerID)},
	{23, "OffsetForLeaderEpoch", 2, 4, typed(handleOffsetForLeaderEpoch)},
	{32, "DescribeConfigs", 1, 4, typed(handleDescribeConfigs)},
	{33, "AlterConfigs", 0, 2, typed(handleAlterConfigs)},
	{35, "DescribeLogDirs", 1, 5, typed(handleDescribeLogDirs)},
	{37, "CreatePartitions", 0, 3, typed(handleCreatePartitions)},
	{42, "DeleteGroups", 0, 3, typed(handleDeleteGroups)},
	{44, "IncrementalAlterConfigs", 0, 1, typed(handleIncrementalAlterConfigs)},
	{47, "OffsetDelete", 0, 0, typed(handleOffsetDelete)},
	{55, "DescribeQuorum", 0, 2, typed(handleDescribeQuorum)},
	{57, "UpdateFeatures", 0, 2, typed(handleUpdateFeatures)},
	{60, "DescribeCluster", 0, 2, typed(handleDescribeCluster)},
	{61, "DescribeProducers", 0, 0, typed(handleDescribeProducers)},
	{74, "ListConfigResources", 0, 1, typed(handleListConfigResources)},
	{75, "DescribeTopicPartitions", 0, 0, typed(handleDescribeTopicPartitions)},
}

// Table lists what is served, by ascending key. It must not be changed.
func Table() []Entry { return table }

// byKey finds a row in constant time.
var byKey = func() (index [maxKey]*Entry) {
	for i := range table {
		index[table[i].Key] = &table[i]
	}
	return index
}()

// maxKey is above every key of the protocol.
const maxKey = 128

// lookup is the row of a key, or nil.
func lookup(key wire.APIKey) *Entry {
	if key < 0 || key >= maxKey {
		return nil
	}
	return byKey[key]
}

// FlexibleHeader tells whether requests of a key and version have a header with a tag buffer.
func FlexibleHeader(key wire.APIKey, version int16) bool {
	e := lookup(key)
	return e != nil && version >= flexibleFrom[key]
}

// flexibleFrom is each served key's first flexible version.
var flexibleFrom = func() (from [maxKey]int16) {
	for i := range table {
		e := &table[i]
		request := kmsg.RequestForKey(int16(e.Key))
		v := int16(0)
		for request.SetVersion(v); v <= e.Max && !request.IsFlexible(); request.SetVersion(v) {
			v++
		}
		from[e.Key] = v
	}
	return from
}()

// typed makes a handler of a function over a decoded request. A body that can't be decoded closes the connection, as
// Kafka does.
func typed[T any, Q interface {
	*T
	kmsg.Request
}](handle func(s *Server, c *call, request Q),
) handler {
	return func(s *Server, c *call, body []byte) {
		request := Q(new(T))
		request.SetVersion(c.Version)
		if err := request.ReadFrom(body); err != nil {
			s.logger.Warn("request body can't be decoded", "api", c.entry.Name, "version", c.Version, "err", err)
			c.close()
			return
		}
		handle(s, c, request)
	}
}
