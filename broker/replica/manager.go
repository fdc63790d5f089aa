package replica

import (
	"cmp"
	"log/slog"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/purgatory"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// Options are what a Manager is made of.
type Options struct {
	Self   wire.BrokerID
	Logs   *log.Manager
	Config *config.Broker
	Logger *slog.Logger
	// Wake is told, with no locks of this package held, when NextWake has become earlier. It must not block. May be nil.
	Wake func(at time.Time)
	// HighWatermark is told, with no locks held, when the high watermark of a partition of an internal topic has moved. Calls
	// for one partition may overtake each other: the highest counts. May be nil.
	HighWatermark func(now time.Time, tp wire.TopicPartition, offset wire.Offset)
	// Tier has the older part of tiered partitions. Nil: there are none.
	Tier Tier
}

// Manager owns the partitions of one broker. Their logs are closed by the owner of the log.Manager.
type Manager struct {
	self          wire.BrokerID
	logs          *log.Manager
	directories   map[string]string // ids of the log directories, by path
	logger        *slog.Logger
	wake          func(at time.Time)
	highWatermark func(now time.Time, tp wire.TopicPartition, offset wire.Offset)
	tier          Tier

	// mu makes changes of the partitions and their roles one at a time: Apply, SetConfig, ISRDecided and retries. It is the
	// first in rank and is held over the disk work of Apply; no request takes it.
	mu     sync.Mutex
	config atomic.Pointer[config.Broker]
	state  atomic.Pointer[state]
	// started: SetStraysAside was called. What partitions come before that are older than this process.
	started bool

	ended atomic.Bool // nothing is appended any more

	produces purgatory.Purgatory[*partition]
	fetches  purgatory.Purgatory[*partition]
	deletes  purgatory.Purgatory[*partition]
	isr      isrWatch
	unheard  unheard
}

// state is what readers see: the image as applied, and the partitions of this broker. It never changes.
type state struct {
	image  *metadata.Image
	byName map[string]*topic
	byID   map[wire.TopicID]*topic
}

// topic holds the partitions of a topic that are on this broker, by index; the others are nil. It never changes.
type topic struct {
	name       string
	id         wire.TopicID
	partitions []*partition
}

// New makes a Manager without partitions. Logs that are on disk wait in o.Logs until Apply names them.
func New(o Options) *Manager {
	m := &Manager{self: o.Self, logs: o.Logs, logger: o.Logger, wake: o.Wake, highWatermark: o.HighWatermark, tier: o.Tier}
	if m.logger == nil {
		m.logger = slog.New(slog.DiscardHandler)
	}
	if m.tier == nil {
		m.tier = untiered{}
	}
	m.directories = map[string]string{}
	for _, d := range o.Logs.Dirs() {
		m.directories[path.Clean(d.Path)] = d.ID.String()
	}
	m.config.Store(o.Config)
	m.state.Store(&state{image: metadata.Empty(), byName: map[string]*topic{}, byID: map[wire.TopicID]*topic{}})
	return m
}

// find gives a partition of this broker by the topic's name. NOT_LEADER_OR_FOLLOWER says that it is on other brokers.
func (s *state) find(name string, index int32) (*partition, wire.Code) {
	if t := s.byName[name]; t != nil {
		if p := t.at(index); p != nil {
			return p, wire.None
		}
	}
	if s.image.Partition(name, index) != nil {
		return nil, wire.NotLeaderOrFollower
	}
	return nil, wire.UnknownTopicOrPartition
}

// findByID gives a partition of this broker by the topic's id. name is what the topic was called when a fetch session began
// to ask for it, or empty: with it an id that is gone is UNKNOWN_TOPIC_OR_PARTITION, or INCONSISTENT_TOPIC_ID where the name
// has another id by now.
func (s *state) findByID(id wire.TopicID, name string, index int32) (*partition, wire.Code) {
	if t := s.byID[id]; t != nil {
		if p := t.at(index); p != nil {
			return p, wire.None
		}
	}
	switch t := s.image.TopicByID(id); {
	case t != nil && index >= 0 && int(index) < len(t.Partitions):
		return nil, wire.NotLeaderOrFollower
	case t != nil:
		return nil, wire.UnknownTopicOrPartition
	case name == "":
		return nil, wire.UnknownTopicID
	case s.image.Topic(name) != nil:
		return nil, wire.InconsistentTopicID
	default:
		return nil, wire.UnknownTopicOrPartition
	}
}

// findNamed is find or findByID.
func (s *state) findNamed(byID bool, name string, id wire.TopicID, index int32) (*partition, wire.Code) {
	if byID {
		return s.findByID(id, name, index)
	}
	return s.find(name, index)
}

func (t *topic) at(index int32) *partition {
	if index < 0 || int(index) >= len(t.partitions) {
		return nil
	}
	return t.partitions[index]
}

// hint is who leads a partition, for clients that came to the wrong broker.
func (s *state) hint(byID bool, name string, id wire.TopicID, index int32) LeaderHint {
	t := s.image.Topic(name)
	if byID {
		t = s.image.TopicByID(id)
	}
	if t == nil || index < 0 || int(index) >= len(t.Partitions) {
		return LeaderHint{}
	}
	p := t.Partitions[index]
	return LeaderHint{Known: true, ID: p.Leader, Epoch: p.LeaderEpoch}
}

// each runs f for every partition, in no order.
func (s *state) each(f func(*partition)) {
	for _, t := range s.byName {
		for _, p := range t.partitions {
			if p != nil {
				f(p)
			}
		}
	}
}

// sorted are the partitions by topic name and index.
func (s *state) sorted() []*partition {
	var all []*partition
	s.each(func(p *partition) { all = append(all, p) })
	slices.SortFunc(all, comparePartitions)
	return all
}

// EndAppends refuses all appends from now on, and returns when those under way are done: where each log ends then, it ends. A broker that
// stops says what the bucket lacks of its logs, and nothing may come after that. Producers and coordinators hear
// NOT_LEADER_OR_FOLLOWER, as from a broker that has handed its leaderships over.
func (m *Manager) EndAppends() {
	m.ended.Store(true)
	m.state.Load().each(func(p *partition) {
		p.appends.Lock()
		defer p.appends.Unlock()
	})
}

// Advance ends requests whose time is over, wakes fetches for what coordinators have appended, and looks for replicas that fell
// behind. It returns ISR changes to ask the controller for, or nil. It never blocks.
func (m *Manager) Advance(now time.Time) *metadata.AlterPartition {
	m.produces.Advance(now)
	m.fetches.Advance(now)
	m.deletes.Advance(now)
	for _, p := range m.unheard.take() {
		m.fetches.Fire(now, p)
	}
	return m.watchISR(now)
}

// NextWake is when Advance will have something to do, or the zero time.
func (m *Manager) NextWake() time.Time {
	next := m.isr.nextWake()
	for _, p := range []*purgatory.Purgatory[*partition]{&m.produces, &m.fetches, &m.deletes} {
		if at, ok := p.NextWake(); ok && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

// park keeps an operation in one of the purgatories and tells the driver when it has to wake earlier for it.
func (m *Manager) park(
	now time.Time, in *purgatory.Purgatory[*partition], op purgatory.Operation, keys []*partition, deadline time.Time,
) {
	if in.Park(now, op, keys, deadline) && m.wake != nil {
		m.wake(deadline)
	}
}

// committed runs what waits for the high watermark of a partition. No lock is held.
func (m *Manager) committed(now time.Time, p *partition) {
	m.produces.Fire(now, p)
	m.fetches.Fire(now, p)
	m.announce(now, p)
}

// announce tells the coordinators of a partition's high watermark.
func (m *Manager) announce(now time.Time, p *partition) {
	if p.internal && m.highWatermark != nil {
		if r := p.role.Load(); r.log != nil {
			m.highWatermark(now, p.tp, r.log.HighWatermark())
		}
	}
}

// changed runs everything that waits for a partition, after its role changed.
func (m *Manager) changed(now time.Time, p *partition) {
	m.committed(now, p)
	m.deletes.Fire(now, p)
}

// comparePartitions orders by topic name, then index.
func comparePartitions(a, b *partition) int { return compareTopicPartitions(a.tp, b.tp) }

func compareTopicPartitions(a, b wire.TopicPartition) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}
