package api

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/replica"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// The versions of Fetch from which things differ.
const (
	fetchSessions    = 7
	fetchZstd        = 10
	fetchReadReplica = 11
	fetchFlexible    = 12
	fetchTopicID     = 13
	fetchLeaders     = 16 // answers may name the addresses of current leaders
)

func handleFetch(s *Server, c *call, request *kmsg.FetchRequest) {
	if request.IsolationLevel < 0 || request.IsolationLevel > 1 {
		c.answerFetch(s, 0, wire.UnknownServerError, nil, nil)
		return
	}
	session := fetchSession(request)
	context, code := s.sessions.Begin(c.now, session)
	if code != wire.None {
		c.answerFetch(s, 0, code, nil, nil)
		return
	}
	fetch := &replica.FetchRequest{
		ReplicaID:   replica.ConsumerID, // no replica fetches here: replicas have a listener of their own
		MaxWait:     time.Duration(request.MaxWaitMillis) * time.Millisecond,
		MinBytes:    request.MinBytes,
		MaxBytes:    request.MaxBytes,
		Isolation:   replica.Isolation(request.IsolationLevel),
		ZstdAllowed: request.Version >= fetchZstd,
		Partitions:  context.Partitions(),
	}
	s.replicas.Fetch(c.now, fetch, func(results []replica.FetchResult) {
		id, code, include := context.Answer(c.now, results)
		rows := make([]fetchRow, 0, len(include))
		for _, i := range include {
			rows = append(rows, fetchRow{asked: &fetch.Partitions[i], got: &results[i]})
		}
		c.answerFetch(s, id, code, rows, results)
	})
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
