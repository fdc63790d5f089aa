package engine

import (
	"sync/atomic"
	"time"

	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// member is this broker's part as a member of the cluster: it registers with the controller, keeps its session alive, and serves
// once it is unfenced.
type member struct {
	engine       *Engine
	registration metadata.RegisterBroker
	state        memberState
	waiting      bool      // a change of ours is out
	due          time.Time // of the next attempt or heartbeat
	leaving      bool      // heartbeats ask for a controlled shutdown
	mayStop      bool      // the controller has moved everything away

	heard   time.Time        // of the last heartbeat that the controller took
	epoch   wire.BrokerEpoch // -1 before the registration
	known   atomic.Int64     // epoch, for other goroutines
	serving atomic.Bool
	served  chan struct{} // closed when serving became true for the first time
}

// memberState is how far a broker has come.
type memberState int8

const (
	unregistered memberState = iota
	registered
)

// registrationRetry is how soon a refused registration or heartbeat is tried again.
const registrationRetry = 250 * time.Millisecond

func (m *member) init(e *Engine, registration metadata.RegisterBroker) {
	m.engine, m.registration, m.epoch = e, registration, -1
	m.known.Store(-1)
	m.served = make(chan struct{})
}

// brokerEpoch is the epoch of the registration, or -1; for any goroutine.
func (m *member) brokerEpoch() wire.BrokerEpoch { return wire.BrokerEpoch(m.known.Load()) }

// confirmed tells whether the controller has heard from this broker within its session time: what it leads, it leads.
func (m *member) confirmed(now time.Time) bool {
	session := time.Duration(m.engine.config.BrokerSessionTimeoutMs) * time.Millisecond
	return m.state == registered && !m.heard.IsZero() && now.Sub(m.heard) < session
}

func (m *member) nextWake() time.Time {
	if m.waiting {
		return time.Time{}
	}
	return m.due
}

func (m *member) step(now time.Time) {
	if m.waiting || now.Before(m.due) {
		return
	}
	m.waiting = true
	if m.state == unregistered {
		m.register(now)
	} else {
		m.heartbeat(now)
	}
}

func (m *member) register(now time.Time) {
	e := m.engine
	change := m.registration
	e.Submit(now, &change, now.Add(e.requestTimeout()), func(answer metadata.Answer, err error) {
		m.waiting = false
		registered, ok := answer.(*metadata.RegisterBrokerAnswer)
		if err != nil || !ok || registered.Result.Code != wire.None {
			m.retry(err, answer)
			return
		}
		m.registered(registered.Epoch)
	})
}

func (m *member) registered(epoch wire.BrokerEpoch) {
	m.state, m.epoch, m.due = registered, epoch, m.engine.stepped
	m.known.Store(int64(epoch))
	m.engine.logger.Info("registered", "broker_epoch", int64(epoch))
}

func (m *member) heartbeat(now time.Time) {
	e := m.engine
	beat := &metadata.BrokerHeartbeat{
		BrokerID: e.self, BrokerEpoch: m.epoch, MetadataOffset: e.Image().Offset(), WantShutdown: m.leaving, Whole: m.leaving && e.tier.whole,
		OfflineDirectories: e.offlineDirectories(),
	}
	if m.leaving {
		beat.Empty = e.tier.empty
	}
	m.due = now.Add(time.Duration(e.config.BrokerHeartbeatIntervalMs) * time.Millisecond)
	e.Submit(now, beat, now.Add(e.requestTimeout()), func(answer metadata.Answer, err error) {
		m.waiting = false
		state, ok := answer.(*metadata.BrokerHeartbeatAnswer)
		switch {
		case err != nil || !ok:
			m.retry(err, answer)
		case state.Result.Code == wire.StaleBrokerEpoch || state.Result.Code == wire.BrokerIDNotRegistered:
			m.state = unregistered
			m.retry(state.Result.Code, answer)
		case state.Result.Code != wire.None:
			m.retry(state.Result.Code, answer)
		default:
			m.mayStop = m.mayStop || state.ShouldShutdown
			m.heard = e.stepped
			m.serve(!state.Fenced && !e.stopAsked.Load())
			if state.Fenced && !m.leaving {
				m.due = e.stepped // catch up at once
			}
		}
	})
}

// serve notes whether clients may be answered.
func (m *member) serve(yes bool) {
	if m.serving.Swap(yes) == yes {
		return
	}
	m.engine.logger.Info("serving changed", "serving", yes)
	if yes {
		select {
		case <-m.served:
		default:
			close(m.served)
			m.warnWithoutGroups()
			m.engine.producers.prepare(m.engine.stepped)
		}
	}
}

// warnWithoutGroups says why groups are refused where Kafka's default for three brokers met one.
func (m *member) warnWithoutGroups() {
	wanted, brokers := m.engine.config.OffsetsTopicReplicationFactor, 0
	for range m.engine.Image().Brokers() {
		brokers++
	}
	if wanted > brokers && m.engine.Image().Topic(wire.ConsumerOffsetsTopic) == nil {
		m.engine.logger.Warn("consumer groups are refused until there are as many brokers as offsets.topic.replication.factor asks for",
			"replicas", wanted, "brokers", brokers)
	}
}

// leave begins a controlled shutdown. A broker that never registered has nothing to hand over.
func (m *member) leave(now time.Time) {
	m.leaving, m.due = true, now
	m.mayStop = m.state == unregistered || !m.engine.config.ControlledShutdownEnable
	m.serve(false)
}

// retry waits a little before the next attempt.
func (m *member) retry(err error, answer metadata.Answer) {
	m.engine.logger.Debug("registration or heartbeat is tried again", "err", err, "answer", answer)
	m.due = m.engine.stepped.Add(registrationRetry)
}
