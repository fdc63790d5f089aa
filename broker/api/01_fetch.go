package api

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/replica"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// The versions of Fetch from which things differ.
const (
	fetchSessions     = 7
	fetchReadReplica  = 11
	fetchFlexible     = 12
	fetchTopicID      = 13
	fetchReplicaState = 15
	fetchLeaders      = 16 // answers may name the addresses of current leaders
)

func handleFetch(s *Server, c *call, request *kmsg.FetchRequest) {
	session := fetchSession(request)
	switch {
	case request.IsolationLevel < 0 || request.IsolationLevel > 1:
		c.refuseFetch(s, session, request.IsolationLevel, wire.UnknownServerError)
		return
	case replicaID(request) >= 0:
		// Replicas have a listener of their own. Here nobody is one, whatever he says.
		c.refusePartitions(s, session, request.IsolationLevel, wire.NotLeaderOrFollower)
		return
	}
	context, code := s.sessions.Begin(c.now, session)
	if code != wire.None {
		c.answerFetch(s, 0, code, nil)
		return
	}
	fetch := &replica.FetchRequest{
		ReplicaID:  replicaID(request),
		MaxWait:    s.maxWait(request.MaxWaitMillis),
		MinBytes:   min(request.MinBytes, request.MaxBytes, int32(s.Config().FetchMaxBytes)), // more is never answered
		MaxBytes:   request.MaxBytes,
		Isolation:  replica.Isolation(request.IsolationLevel),
		Partitions: context.Partitions(),
	}
	s.replicas.Fetch(c.now, fetch, func(results []replica.FetchResult) {
		id, code, include := context.Answer(c.now, results)
		rows := make([]fetchRow, 0, len(include))
		for _, i := range include {
			rows = append(rows, fetchRow{asked: &fetch.Partitions[i], got: &results[i]})
		}
		c.answerFetch(s, id, code, rows)
	})
}

// maxWait is how long a fetch may wait, which no client needs for longer than an idle connection lives: that its client has gone
// shows only when it is answered.
func (s *Server) maxWait(asked int32) time.Duration {
	wait := time.Duration(asked) * time.Millisecond
	if idle := time.Duration(s.Config().ConnectionsMaxIdleMs) * time.Millisecond; idle > 0 {
		wait = min(wait, idle)
	}
	return wait
}

// replicaID is who the client says that it is; -1 is a consumer.
func replicaID(request *kmsg.FetchRequest) wire.BrokerID {
	if request.Version >= fetchReplicaState {
		return wire.BrokerID(request.ReplicaState.ID)
	}
	return wire.BrokerID(request.ReplicaID)
}

// refuseFetch answers a request that can't be served at all: as a whole where the version can say so, else for each partition.
func (c *call) refuseFetch(s *Server, session replica.SessionRequest, isolation int8, code wire.Code) {
	if c.Version >= fetchSessions {
		c.answerFetch(s, 0, code, nil)
		return
	}
	c.refusePartitions(s, session, isolation, code)
}

// refusePartitions answers the same error for each partition.
func (c *call) refusePartitions(s *Server, session replica.SessionRequest, isolation int8, code wire.Code) {
	var aborted []replica.AbortedTransaction // null, but for isolation levels other than 0
	if isolation != 0 {
		aborted = []replica.AbortedTransaction{}
	}
	results := make([]replica.FetchResult, len(session.Partitions))
	rows := make([]fetchRow, len(session.Partitions))
	for i := range session.Partitions {
		results[i] = replica.FetchResult{
			Code: code, HighWatermark: wire.NoOffset, LastStableOffset: wire.NoOffset, LogStartOffset: wire.NoOffset,
			Diverging: replica.EpochEnd{Epoch: wire.NoLeaderEpoch}, PreferredReadReplica: wire.NoBroker, Aborted: aborted,
		}
		rows[i] = fetchRow{asked: &session.Partitions[i], got: &results[i]}
	}
	c.answerFetch(s, 0, wire.None, rows)
}

// fetchSession reads what a request says about its session.
func fetchSession(request *kmsg.FetchRequest) replica.SessionRequest {
	session := replica.SessionRequest{ID: 0, Epoch: -1, ByID: request.Version >= fetchTopicID}
	if request.Version >= fetchSessions {
		session.ID, session.Epoch = request.SessionID, request.SessionEpoch
	}
	count := 0
	for i := range request.Topics {
		count += len(request.Topics[i].Partitions)
	}
	session.Partitions = make([]replica.FetchPartition, 0, count)
	for i := range request.Topics {
		t := &request.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			session.Partitions = append(session.Partitions, replica.FetchPartition{
				Topic: t.Topic, TopicID: t.TopicID, Partition: p.Partition,
				CurrentLeaderEpoch: wire.LeaderEpoch(p.CurrentLeaderEpoch),
				LastFetchedEpoch:   wire.LeaderEpoch(p.LastFetchedEpoch),
				FetchOffset:        wire.Offset(p.FetchOffset),
				LogStartOffset:     wire.Offset(p.LogStartOffset),
				MaxBytes:           p.PartitionMaxBytes,
			})
		}
	}
	for _, t := range request.ForgottenTopics {
		for _, p := range t.Partitions {
			session.Forgotten = append(session.Forgotten, replica.PartitionRef{Topic: t.Topic, TopicID: t.TopicID, Partition: p})
		}
	}
	return session
}
