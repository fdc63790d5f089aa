package replica

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/isr"
	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// SetConfig changes the broker's settings: defaults of topics, limits. It comes before the Apply of the image that brought
// the change.
func (m *Manager) SetConfig(now time.Time, c *config.Broker) {
	m.config.Store(c)
	m.update(now, nil, false, func(u *update) {
		for _, t := range u.next.byName {
			u.reconfigure(t)
		}
		u.next.each(func(p *partition) {
			p.change(func(s *isr.State) bool { s.SetLagTimeMax(lagTimeMax(c)); return false })
		})
	})
}

// Apply takes over a newer image, of which delta says what changed: it creates logs, becomes leader or follower, takes new
// topic configs, and gives up and deletes the logs of topics whose deletion is in the image (under the topic id that was
// deleted, and no other). It touches the disk. Calls must not overlap and follow the order of the images. Partitions whose
// log can't be opened answer KAFKA_STORAGE_ERROR; that is logged and is no error of Apply.
func (m *Manager) Apply(now time.Time, image *metadata.Image, delta metadata.Delta) {
	m.update(now, image, len(delta.Topics) > 0, func(u *update) {
		for i := range delta.Topics {
			if d := &delta.Topics[i]; d.After == nil {
				u.removeTopic(d.Before)
			} else {
				u.changeTopic(d)
			}
		}
		for _, r := range delta.Configs {
			if t := u.next.byName[r.Name]; t != nil && r.Type == metadata.TopicResource {
				u.reconfigure(t)
			}
		}
		for i := range delta.Brokers {
			u.brokerChanged(delta.Brokers[i].ID)
		}
	})
}

// SetStraysAside renames the logs on disk that no partition of the image accounts for: nobody has committed their deletion
// (safety.md 9). It is for the start, after the image has caught up with the metadata log.
func (m *Manager) SetStraysAside(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.started = true
	s := m.state.Load()
	for _, l := range m.logs.Logs() {
		tp := l.TopicPartition()
		if p, _ := s.find(tp.Topic, tp.Partition); p == nil || p.topicID != l.TopicID() {
			m.setAside(now, l)
		}
	}
}

// Placements says where logs lie, as far as the image does not say so yet: the controller is to be told (KIP-858).
func (m *Manager) Placements() []metadata.DirectoryAssignment {
	var unknown []metadata.DirectoryAssignment
	for _, p := range m.state.Load().sorted() {
		r := p.role.Load()
		if r.log == nil {
			continue
		}
		if id := m.directories[path.Dir(r.log.Dir())]; r.metadata.DirectoryOf(m.self) != id {
			unknown = append(unknown, metadata.DirectoryAssignment{TopicID: p.topicID, Partition: p.tp.Partition, Directory: id})
		}
	}
	return unknown
}

// online tells whether a log directory is there and has not failed.
func (m *Manager) online(id string) bool {
	for _, failed := range m.logs.Offline() {
		if m.directories[path.Clean(failed)] == id {
			return false
		}
	}
	for _, known := range m.directories {
		if known == id {
			return true
		}
	}
	return false
}

// update is a step from one state to the next, under Manager.mu.
type update struct {
	m       *Manager
	now     time.Time
	next    *state
	touched []*partition // whose waiting requests must look again
}

// update makes and publishes the next state: of image, or of the present one where image is nil. f may change its topics only
// where topics says so. Who waits is woken after that, so
// that whoever looks again finds each partition as it now is.
func (m *Manager) update(now time.Time, image *metadata.Image, topics bool, f func(*update)) {
	u := &update{m: m, now: now}
	m.mu.Lock()
	old := m.state.Load()
	if image == nil {
		image = old.image
	}
	u.next = &state{image: image, byName: old.byName, byID: old.byID}
	if topics {
		u.next.byName, u.next.byID = maps.Clone(old.byName), maps.Clone(old.byID)
	}
	f(u)
	m.state.Store(u.next)
	m.isr.reset(now, u.next, lagTimeMax(m.config.Load()))
	m.mu.Unlock()
	for _, p := range u.touched {
		m.changed(now, p)
	}
}

// setAside puts a log that nobody can explain aside. One without a topic id that holds nothing explains itself: its broker died while
// it made it.
func (m *Manager) setAside(now time.Time, l *log.Log) {
	tp := l.TopicPartition()
	away := m.logs.MarkStray
	if l.TopicID().IsZero() && l.Size() == 0 && l.EndOffset() == 0 {
		away = m.logs.Delete
	} else {
		m.logger.Warn("log is of no partition that is known here and is set aside",
			"topic", tp.Topic, "partition", tp.Partition, "topic_id", l.TopicID().String())
	}
	if err := away(now, tp); err != nil {
		m.logger.Error("log can't be set aside", "topic", tp.Topic, "partition", tp.Partition, "err", err)
	}
}

// removeTopic takes a deleted topic away, also where only its logs are here.
func (u *update) removeTopic(before *metadata.Topic) {
	if t := u.next.byID[before.ID]; t != nil {
		for _, p := range t.partitions {
			if p != nil {
				u.retire(p)
			}
		}
		u.drop(t)
	}
	for index := range before.Partitions {
		tp := wire.TopicPartition{Topic: before.Name, Partition: int32(index)}
		if l, ok := u.m.logs.Get(tp); ok && l.TopicID() == before.ID {
			if err := u.m.logs.Delete(u.now, tp); err != nil {
				u.m.logger.Error("log can't be deleted", "topic", tp.Topic, "partition", tp.Partition, "err", err)
			}
		}
	}
}

// retire ends a partition's time on this broker. Its log stays where it is.
func (u *update) retire(p *partition) {
	p.lock()
	defer p.unlock()
	r := *p.role.Load()
	r.log, r.gone, r.leads = nil, true, false
	p.role.Store(&r)
	p.isr = nil
	u.m.tier.Resign(p.tp)
	u.touched = append(u.touched, p)
}

func (u *update) drop(t *topic) {
	if u.next.byName[t.name] == t {
		delete(u.next.byName, t.name)
	}
	delete(u.next.byID, t.id)
}

// changeTopic takes over a new topic, or new states of its partitions.
func (u *update) changeTopic(d *metadata.TopicDelta) {
	t := &topic{name: d.After.Name, id: d.After.ID, partitions: make([]*partition, len(d.After.Partitions))}
	var set *settings
	if old := u.next.byID[t.id]; old != nil {
		copy(t.partitions, old.partitions)
		set = old.settings()
	}
	for i := range d.Partitions {
		pd := &d.Partitions[i]
		at := &t.partitions[pd.Index]
		switch {
		case pd.After == nil:
		case slices.Contains(pd.After.Replicas, u.m.self):
			if set == nil {
				set = u.m.settingsOf(u.next.image, t.name)
			}
			if *at == nil {
				*at = u.newPartition(t, pd.Index)
			}
			u.become(*at, pd.After, set, u.logOf(*at, pd.After, set))
		case *at != nil: // assigned elsewhere. The log is kept: only a topic's deletion removes data
			l := (*at).role.Load().log
			u.retire(*at)
			if l != nil {
				u.m.setAside(u.now, l)
			}
			*at = nil
		}
	}
	if slices.ContainsFunc(t.partitions, func(p *partition) bool { return p != nil }) {
		u.next.byName[t.name], u.next.byID[t.id] = t, t
	} else {
		u.drop(t)
	}
}

func (u *update) newPartition(t *topic, index int32) *partition {
	tp := wire.TopicPartition{Topic: t.name, Partition: index}
	return &partition{tp: tp, topicID: t.id, internal: wire.IsInternalTopic(t.name), ended: &u.m.ended}
}

// settings of the topic as its partitions have them, or nil.
func (t *topic) settings() *settings {
	for _, p := range t.partitions {
		if p != nil {
			return p.role.Load().settings
		}
	}
	return nil
}

func (m *Manager) settingsOf(image *metadata.Image, name string) *settings {
	overrides := image.Configs(metadata.ConfigResource{Type: metadata.TopicResource, Name: name})
	resolved, err := config.ResolveTopic(m.config.Load(), overrides)
	if err != nil {
		m.logger.Error("topic config is taken only in part", "topic", name, "err", err)
	}
	return newSettings(resolved)
}

// reconfigure gives a topic's partitions the config that it has now.
func (u *update) reconfigure(t *topic) {
	set := u.m.settingsOf(u.next.image, t.name)
	for _, p := range t.partitions {
		if p == nil {
			continue
		}
		r := *p.role.Load()
		r.settings = set
		if r.log != nil {
			r.log.UpdateConfig(set.topic)
			u.m.tier.Changed(p.tp)
		}
		p.role.Store(&r) // Manager.mu keeps others from changing it; appends go on with either
		if p.change(func(s *isr.State) bool { return s.SetMinISR(u.now, set.topic.MinInSyncReplicas) }) {
			u.touched = append(u.touched, p)
		}
	}
}

// logOf is the log that a partition has, or gets now; nil where that fails.
func (u *update) logOf(p *partition, state *metadata.Partition, set *settings) *log.Log {
	if r := p.role.Load(); r != nil {
		return r.log // where it is missing, reopen tries again
	}
	l, err := u.m.openLog(u.now, p, state, set)
	if err != nil {
		u.m.logger.Error("partition has no log", "topic", p.tp.Topic, "partition", p.tp.Partition, "err", err)
	}
	return l
}

// become makes a partition leader or follower in the state of the image, over a log or without one.
func (u *update) become(p *partition, state *metadata.Partition, set *settings, l *log.Log) {
	before := p.role.Load()
	r := &role{log: l, leaderEpoch: state.LeaderEpoch, leads: state.Leader == u.m.self, metadata: state, settings: set}
	p.lock()
	defer p.unlock()
	defer p.role.Store(r)
	u.touched = append(u.touched, p)
	switch {
	case r.log == nil || !r.leads:
		p.isr = nil
		u.m.tier.Resign(p.tp)
	case before != nil && before.held && before.leaderEpoch == state.LeaderEpoch:
		r.held = true
	case before != nil && p.isr != nil && before.leaderEpoch == state.LeaderEpoch:
		r.epochStart = before.epochStart
		if p.isr.Updated(u.now, state.PartitionEpoch, state.Replicas, state.ISR) {
			r.log.UpdateHighWatermark(p.isr.HighWatermark())
		}
	default:
		if r.held = u.m.tier.Lead(u.now, Leadership{
			TopicPartition: p.tp, TopicID: p.topicID, Epoch: r.leaderEpoch, Log: r.log, Internal: p.internal,
			Recovering: r.metadata.Recovery == metadata.Recovering, RecoverySince: r.metadata.RecoverySince,
		}); r.held {
			p.isr = nil
			return
		}
		u.lead(p, r)
	}
}

// Release lets a partition serve that was held when its leadership began, if that epoch is still the one. The log may have begun
// anew meanwhile.
func (m *Manager) Release(now time.Time, tp wire.TopicPartition, epoch wire.LeaderEpoch) {
	m.update(now, nil, false, func(u *update) {
		p, code := u.next.find(tp.Topic, tp.Partition)
		if code != wire.None {
			return
		}
		p.lock()
		defer p.unlock()
		r := *p.role.Load()
		if !r.held || r.leaderEpoch != epoch {
			return
		}
		r.held = false
		u.lead(p, &r)
		p.role.Store(&r)
		u.touched = append(u.touched, p)
	})
}

// lead begins a leadership. The partition is locked.
func (u *update) lead(p *partition, r *role) {
	r.log.AssignEpochStart(r.leaderEpoch)
	r.epochStart = r.log.EndOffset()
	p.isr = isr.New(u.now, isr.Leadership{
		Self:           u.m.self,
		LeaderEpoch:    r.leaderEpoch,
		PartitionEpoch: r.metadata.PartitionEpoch,
		Replicas:       r.metadata.Replicas,
		ISR:            r.metadata.ISR,
		EpochStart:     r.epochStart,
		LogEndOffset:   r.epochStart,
		HighWatermark:  r.log.HighWatermark(),
		MinISR:         r.settings.topic.MinInSyncReplicas,
		LagTimeMax:     lagTimeMax(u.m.config.Load()),
	})
	for _, broker := range r.metadata.Replicas {
		p.isr.SetLiveness(u.now, broker, livenessOf(u.next.image, broker))
	}
	r.log.UpdateHighWatermark(p.isr.HighWatermark())
}

// openLog finds or makes the log of a partition. A log in a directory that is not there is an error: to begin an empty one
// elsewhere would lose what it holds.
func (m *Manager) openLog(now time.Time, p *partition, state *metadata.Partition, set *settings) (*log.Log, error) {
	l, ok := m.logs.Get(p.tp)
	if ok && l.TopicID() == p.topicID {
		l.UpdateConfig(set.topic)
		return l, nil
	}
	if ok { // of a topic of the same name whose deletion nobody has told us of
		m.setAside(now, l)
	}
	if directory := state.DirectoryOf(m.self); directory != "" && !m.online(directory) {
		return nil, fmt.Errorf("log directory %s is offline: %w", directory, log.ErrStorage)
	}
	if state.LeaderEpoch > 0 || !m.started {
		return m.logs.CreateAnew(now, p.tp, p.topicID, set.topic)
	}
	return m.logs.Create(now, p.tp, p.topicID, set.topic)
}

// reopen tries again to open logs that could not be: there may be room by now.
func (m *Manager) reopen(now time.Time) {
	var missing []*partition
	m.state.Load().each(func(p *partition) {
		if p.role.Load().log == nil {
			missing = append(missing, p)
		}
	})
	if len(missing) == 0 {
		return
	}
	slices.SortFunc(missing, comparePartitions)
	m.update(now, nil, false, func(u *update) {
		for _, p := range missing {
			r := p.role.Load()
			if r.gone || r.log != nil {
				continue
			}
			if l, err := m.openLog(now, p, r.metadata, r.settings); err == nil {
				u.become(p, r.metadata, r.settings, l)
			}
		}
	})
}

func (u *update) brokerChanged(id wire.BrokerID) {
	live := livenessOf(u.next.image, id)
	u.next.each(func(p *partition) {
		if p.change(func(s *isr.State) bool { return s.SetLiveness(u.now, id, live) }) {
			u.touched = append(u.touched, p)
		}
	})
}

func livenessOf(image *metadata.Image, id wire.BrokerID) isr.Liveness {
	b := image.Broker(id)
	if b == nil {
		return isr.Liveness{Epoch: isr.NoBrokerEpoch}
	}
	return isr.Liveness{Active: b.Active(), Epoch: b.Epoch}
}

func lagTimeMax(c *config.Broker) time.Duration {
	return time.Duration(c.ReplicaLagTimeMaxMs) * time.Millisecond
}
