package controller

import (
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
)

func (s *step) registerBroker(change *metadata.RegisterBroker) *metadata.RegisterBrokerAnswer {
	epoch, err := s.register(change)
	return &metadata.RegisterBrokerAnswer{Result: metadata.ResultOf(err), Epoch: epoch}
}

// register writes a new registration, fenced, and in the same commit takes from the broker what its new incarnation must not
// resume (safety.md 7, 10, 11).
func (s *step) register(change *metadata.RegisterBroker) (wire.BrokerEpoch, error) {
	if err := s.checkRegistration(change); err != nil {
		return -1, err
	}
	former := s.image.Broker(change.BrokerID)
	if former != nil && former.Incarnation == change.Incarnation {
		// The answer to an earlier attempt was lost.
		s.hear(change.BrokerID, wire.NoOffset)
		return former.Epoch, nil
	}
	epoch := wire.BrokerEpoch(s.image.Offset() + 1)
	broker := metadata.Broker{
		ID:             change.BrokerID,
		Epoch:          epoch,
		Incarnation:    change.Incarnation,
		BootID:         change.BootID,
		Directories:    slices.Sorted(slices.Values(change.Directories)),
		CleanStopEpoch: change.CleanStopEpoch,
		Listeners:      change.Listeners,
		Rack:           change.Rack,
		Features: slices.SortedFunc(slices.Values(change.Features), func(a, b metadata.SupportedFeature) int {
			return strings.Compare(a.Name, b.Name)
		}),
		Fenced: true,
	}
	s.add(&metadata.BrokerRegistrationRecord{Broker: broker})
	lostUnflushed := former != nil && mayHaveLostPower(former, change)
	s.eachReplica(broker.ID, func(p *metadata.Partition) partitionState { return s.reincarnate(&broker, p, lostUnflushed) })
	s.sessions[broker.ID] = &session{heard: s.now, offset: wire.NoOffset}
	return epoch, nil
}

// mayHaveLostPower tells whether the broker stopped in a way that can have cost it what was not flushed: not cleanly, and not
// provably as a mere process. What it has flushed it keeps, so it stays the last member of an ISR.
func mayHaveLostPower(former *metadata.Broker, change *metadata.RegisterBroker) bool {
	clean := change.CleanStopEpoch == former.Epoch
	sameBoot := change.BootID != "" && change.BootID == former.BootID
	return !clean && !sameBoot
}

// reincarnate gives the state of a partition after a registration of one of its brokers, which is fenced still. Where others are in
// the ISR, they take over. Where it is alone there, nobody else can lead: it does, under an epoch that its former
// incarnation never had, as soon as it is unfenced; but not without the directory that it had the partition in.
func (s *step) reincarnate(b *metadata.Broker, p *metadata.Partition, lostUnflushed bool) partitionState {
	online := directoryOnline(b, p)
	to := s.withdraw(b.ID, p)
	if online && slices.Equal(p.ISR, []wire.BrokerID{b.ID}) {
		to.leader, to.newEpoch = b.ID, true
	}
	if !online || lostUnflushed {
		to.elr = without(p.ELR, b.ID)
	}
	return to
}

func (s *step) checkRegistration(change *metadata.RegisterBroker) error {
	if change.ClusterID != s.clusterID {
		return refusal(wire.InconsistentClusterID, "Expected cluster ID %s, but got cluster ID %s", s.clusterID, change.ClusterID)
	}
	if have := s.image.ClusterIncarnation(); change.ClusterIncarnation != have {
		return refusal(wire.InconsistentClusterID, "Expected cluster incarnation %d, but got cluster incarnation %d", have, change.ClusterIncarnation)
	}
	if change.BrokerID < 0 || change.Incarnation == "" || len(change.Listeners) == 0 || len(change.Directories) == 0 {
		return refusal(wire.InvalidRegistration, "A registration needs a broker id, an incarnation, listeners and log directories.")
	}
	texts := append([]string{change.Incarnation, change.BootID, change.Rack}, change.Directories...)
	for _, l := range change.Listeners {
		texts = append(texts, l.Name, l.Host, l.Protocol)
	}
	for _, f := range change.Features {
		texts = append(texts, f.Name)
	}
	if slices.ContainsFunc(texts, func(text string) bool { return !utf8.ValidString(text) }) {
		return refusal(wire.InvalidRegistration, "A registration is made of UTF-8 texts.")
	}
	if former := s.image.Broker(change.BrokerID); former != nil && former.Incarnation != change.Incarnation && s.sessionLives(former) {
		return refusal(wire.DuplicateBrokerRegistration, "Another broker is registered with that broker id. If the broker was recently restarted "+
			"this should self-resolve once the heartbeat manager expires the broker's session.")
	}
	seen := map[string]bool{"": true}
	for _, directory := range change.Directories {
		if seen[directory] {
			return refusal(wire.InvalidRegistration, "The log directory id %q is absent or not unique.", directory)
		}
		seen[directory] = true
	}
	for b := range s.image.Brokers() {
		if b.ID != change.BrokerID && slices.ContainsFunc(b.Directories, func(d string) bool { return seen[d] }) {
			return refusal(wire.InvalidRegistration, "Broker %d is already registered with one of the log directory ids of broker %d.", b.ID, change.BrokerID)
		}
	}
	for _, finalized := range s.image.Features().Levels {
		if !supports(change.Features, finalized.Name, finalized.Level) {
			return refusal(wire.UnsupportedVersion, "Unable to register because the broker does not support finalized version %d of feature %s.",
				finalized.Level, finalized.Name)
		}
	}
	return nil
}

func supports(features []metadata.SupportedFeature, name string, level int16) bool {
	return slices.ContainsFunc(features, func(f metadata.SupportedFeature) bool {
		return f.Name == name && f.Min <= level && level <= f.Max
	})
}

func (s *step) unregisterBroker(change *metadata.UnregisterBroker) *metadata.UnregisterBrokerAnswer {
	b := s.image.Broker(change.BrokerID)
	if b == nil {
		return &metadata.UnregisterBrokerAnswer{
			Result: metadata.ResultOf(refusal(wire.BrokerIDNotRegistered, "Broker ID %d is not currently registered", change.BrokerID)),
		}
	}
	s.add(&metadata.UnregisterBrokerRecord{BrokerID: b.ID, Epoch: b.Epoch})
	s.eachReplica(b.ID, func(p *metadata.Partition) partitionState { return s.withdraw(b.ID, p) })
	delete(s.sessions, b.ID)
	return &metadata.UnregisterBrokerAnswer{}
}

// registered gives the broker whose current epoch that is.
func (s *step) registered(id wire.BrokerID, epoch wire.BrokerEpoch) (*metadata.Broker, error) {
	b := s.image.Broker(id)
	if b == nil {
		return nil, refusal(wire.BrokerIDNotRegistered, "Broker ID %d is not currently registered", id)
	}
	if b.Epoch != epoch {
		return nil, refusal(wire.StaleBrokerEpoch, "Expected broker epoch %d, but got broker epoch %d", b.Epoch, epoch)
	}
	return b, nil
}

// producerIDBlock is how many ids a broker gets at a time, as in Kafka.
const producerIDBlock = 1000

func (s *step) allocateProducerIDs(change *metadata.AllocateProducerIDs) *metadata.AllocateProducerIDsAnswer {
	if _, err := s.registered(change.BrokerID, change.BrokerEpoch); err != nil {
		return &metadata.AllocateProducerIDsAnswer{Result: metadata.ResultOf(err), First: wire.NoProducerID}
	}
	first := s.image.NextProducerID()
	if first > math.MaxInt64-producerIDBlock {
		return &metadata.AllocateProducerIDsAnswer{
			Result: metadata.ResultOf(refusal(wire.UnknownServerError, "Exhausted all producerIds as the next block's end producerId "+
				"has exceeded the int64 type limit")),
			First: wire.NoProducerID,
		}
	}
	s.add(&metadata.ProducerIDBlockRecord{BrokerID: change.BrokerID, BrokerEpoch: change.BrokerEpoch, NextProducerID: first + producerIDBlock})
	return &metadata.AllocateProducerIDsAnswer{First: first, Length: producerIDBlock}
}
