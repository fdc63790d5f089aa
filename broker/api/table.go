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
	notation string // of the request's layout
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
	{0, "Produce", 3, 13, "s? 2 4 (s@3-12 16@13+ (4 b?))", typed(handleProduce)},
	{1, "Fetch", 4, 18, "4@4-14 4 4 4 1 4@7+ 4@7+ (s@4-12 16@13+ (4 4@9+ 8 4@12+ 8@5+ 4)) (s@7-12 16@13+ [4]@7+)@7+ s@11+", typed(handleFetch)},
	{2, "ListOffsets", 1, 11, "4 1@2+ (s (4 4@4+ 8)) 4@10+", typed(handleListOffsets)},
	{3, "Metadata", 0, 13, "(16@10+ s?10+)?1+ 1@4+ 1@8-10 1@8+", typed(handleMetadata)},
	{8, "OffsetCommit", 2, 10, "s 4 s s?@7+ 8@2-4 (s@2-9 16@10+ (4 8 4@6+ s?))", typed(handleOffsetCommit)},
	{9, "OffsetFetch", 1, 10, "s@1-7 (s@1-7 [4]@1-7)?2+@1-7 (s@8+ s?@9+ 4@9+ (s@8-9 16@10+ [4]@8+)?@8+)@8+ 1@7+", typed(handleOffsetFetch)},
	{10, "FindCoordinator", 0, 6, "s@0-3 1@1+ [s]@4+", typed(handleFindCoordinator)},
	{11, "JoinGroup", 0, 9, "s 4 4@1+ s s?@5+ s (s b) s?@8+", typed(handleJoinGroup)},
	{12, "Heartbeat", 0, 4, "s 4 s s?@3+", typed(handleHeartbeat)},
	{13, "LeaveGroup", 0, 5, "s s@0-2 (s@3+ s?@3+ s?@5+)@3+", typed(handleLeaveGroup)},
	{14, "SyncGroup", 0, 5, "s 4 s s?@3+ s?@5+ s?@5+ (s b)", typed(handleSyncGroup)},
	{15, "DescribeGroups", 0, 6, "[s] 1@3+", typed(handleDescribeGroups)},
	{16, "ListGroups", 0, 5, "[s]@4+ [s]@5+", typed(handleListGroups)},
	{18, "ApiVersions", 0, 5, "s@3+ s@3+ s?@5+ 4@5+", handleAPIVersions},
	{19, "CreateTopics", 2, 7, "(s 4 2 (4 [4]) (s s?)) 4 1", typed(handleCreateTopics)},
	{20, "DeleteTopics", 1, 6, "(s?@6+ 16@6+)@6+ [s]@1-5 4", typed(handleDeleteTopics)},
	{21, "DeleteRecords", 0, 2, "(s (4 8)) 4", typed(handleDeleteRecords)},
	{22, "InitProducerId", 0, 5, "s? 4 8@3+ 2@3+", typed(handleInitProducerID)},
	{23, "OffsetForLeaderEpoch", 2, 4, "4@3+ (s (4 4 4))", typed(handleOffsetForLeaderEpoch)},
	{32, "DescribeConfigs", 1, 4, "(1 s [s]?) 1 1@3+", typed(handleDescribeConfigs)},
	{33, "AlterConfigs", 0, 2, "(1 s (s s?)) 1", typed(handleAlterConfigs)},
	{35, "DescribeLogDirs", 1, 5, "(s [4])?", typed(handleDescribeLogDirs)},
	{37, "CreatePartitions", 0, 3, "(s 4 ([4])?) 4 1", typed(handleCreatePartitions)},
	{42, "DeleteGroups", 0, 3, "[s]", typed(handleDeleteGroups)},
	{44, "IncrementalAlterConfigs", 0, 1, "(1 s (s 1 s?)) 1", typed(handleIncrementalAlterConfigs)},
	{47, "OffsetDelete", 0, 0, "s (s (4))", typed(handleOffsetDelete)},
	{55, "DescribeQuorum", 0, 2, "(s (4))", typed(handleDescribeQuorum)},
	{57, "UpdateFeatures", 0, 2, "4 (s 2 1@0 1@1+) 1@1+", typed(handleUpdateFeatures)},
	{60, "DescribeCluster", 0, 2, "1 1@1+ 1@2+", typed(handleDescribeCluster)},
	{61, "DescribeProducers", 0, 0, "(s [4])", typed(handleDescribeProducers)},
	{74, "ListConfigResources", 0, 1, "[1]@1+", typed(handleListConfigResources)},
	{75, "DescribeTopicPartitions", 0, 0, "(s) 4 {s 4}?", typed(handleDescribeTopicPartitions)},
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

// layouts are each served key's layouts by version, from the first that is served on.
var layouts = func() (of [maxKey][]*layout) {
	for i := range table {
		e := &table[i]
		for v := e.Min; v <= e.Max; v++ {
			of[e.Key] = append(of[e.Key], parseLayout(e.notation, v, v >= flexibleFrom[e.Key]))
		}
	}
	return of
}()

// CheckBody refuses a body of a request that must not be decoded: one that claims more than it holds. A version that is not served
// is not looked at.
func CheckBody(key wire.APIKey, version int16, body []byte) error {
	e := lookup(key)
	if e == nil {
		return nil
	}
	return e.checkLayout(version, body)
}

// checkLayout refuses a body that must not be decoded.
func (e *Entry) checkLayout(version int16, body []byte) error {
	if version < e.Min || version > e.Max {
		return nil // ApiVersions, which looks at no more than the version
	}
	return layouts[e.Key][version-e.Min].check(body)
}

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
			c.close(err)
			return
		}
		handle(s, c, request)
	}
}
