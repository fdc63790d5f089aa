package coordinator

import (
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// partition is one partition of the internal topic under this broker's leadership.
type partition[S Shard] struct {
	id int32

	mu      sync.Mutex // guards what follows and everything in the shard; held while appending
	epoch   wire.LeaderEpoch
	load    *Load // not nil while loading
	failed  bool  // the load failed, or the partition was closed
	shard   S     // once loaded
	written wire.Offset
	builder record.Builder

	waiting waiting
}

func newPartition[S Shard](id int32, epoch wire.LeaderEpoch, load *Load) *partition[S] {
	return &partition[S]{id: id, epoch: epoch, load: load}
}

// refusal is why the partition does not answer, or nil.
func (p *partition[S]) refusal() error {
	switch {
	case p.failed:
		return wire.NotCoordinator
	case p.load != nil:
		return wire.CoordinatorLoadInProgress
	}
	return nil
}

// leads tells whether the partition is led under epoch or a later one.
func (p *partition[S]) leads(epoch wire.LeaderEpoch) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.epoch >= epoch
}

// continues tells whether leadership under epoch needs no load, and takes the epoch over.
func (p *partition[S]) continues(epoch wire.LeaderEpoch) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed {
		return p.epoch > epoch
	}
	if p.epoch == epoch-1 {
		p.epoch = epoch
	}
	return p.epoch >= epoch
}

// finish takes over what was loaded. It tells whether the load was still wanted.
func (p *partition[S]) finish(now time.Time, load *Load, high wire.Offset, err error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.load != load {
		return false
	}
	p.load = nil
	if err != nil {
		p.failed = true
		return true
	}
	p.shard = load.shard.(S)
	p.written = load.end
	p.shard.Loaded(now)
	p.waiting.advance(high)
	p.waiting.release(p.shard.NextWake()) // nobody waits yet
	return true
}

// close ends the partition and returns the replies that it owes.
func (p *partition[S]) close() []func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	answers := p.refusal() == nil
	p.failed, p.load = true, nil
	ready := p.waiting.abandon()
	if answers {
		ready = bind(ready, p.shard.Unload(), wire.NotCoordinator)
	}
	return ready
}

func (p *partition[S]) handle(now time.Time, cfg *Config[S], fn func(S) Result) ([]func(), error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.refusal(); err != nil {
		return nil, err
	}
	p.waiting.hold()
	ready := p.perform(now, cfg, fn(p.shard))
	return append(p.waiting.release(p.shard.NextWake()), ready...), nil
}

func (p *partition[S]) view(fn func(S)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.refusal(); err != nil {
		return err
	}
	fn(p.shard)
	return nil
}

func (p *partition[S]) advance(now time.Time, cfg *Config[S]) []func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refusal() != nil {
		return nil
	}
	p.waiting.hold()
	var ready []func()
	for {
		result, ok := p.shard.Advance(now)
		if !ok {
			break
		}
		ready = append(ready, p.perform(now, cfg, result)...)
	}
	committed := p.waiting.release(p.shard.NextWake())
	return append(append(committed, p.waiting.expire(now)...), ready...)
}

// perform appends and replays a result's records and returns the replies that need not wait.
func (p *partition[S]) perform(now time.Time, cfg *Config[S], result Result) []func() {
	for rest := result.Records; len(rest) > 0; {
		batch := rest
		if result.Divisible {
			batch = rest[:fitting(rest)]
		}
		if err := p.append(now, cfg, batch); err != nil {
			cfg.Logger.Warn("coordinator records not appended", "partition", p.id, "err", err)
			ready := bind(nil, result.Replies, CodeOf(err))
			if result.Rejected != nil {
				ready = append(ready, p.perform(now, cfg, result.Rejected())...)
			}
			return ready
		}
		rest = rest[len(batch):]
	}
	if len(result.Records) == 0 && !result.Barrier {
		return bind(nil, result.Replies, nil)
	}
	p.waiting.add(p.written, now.Add(cfg.CommitTimeout), result.Replies)
	return nil
}

func (p *partition[S]) append(now time.Time, cfg *Config[S], records []Record) error {
	p.builder.Reset()
	defer func() {
		if p.builder.Size() > keptBytes {
			p.builder = record.Builder{}
		}
	}()
	room := NewRoom(cfg.Appender)
	for _, r := range records {
		if !room.Take(r) {
			return wire.MessageTooLarge
		}
		p.builder.Append(now.UnixMilli(), r.Key, r.Value)
	}
	batch, err := p.builder.Build()
	if err != nil {
		return err
	}
	end, err := cfg.Appender.Append(now, p.id, p.epoch, batch)
	if err != nil {
		return err
	}
	p.written = end
	for _, r := range records {
		if err := p.shard.Replay(r); err != nil {
			cfg.Logger.Error("own record not replayed", "partition", p.id, "err", err)
		}
	}
	return nil
}

// keptBytes is how large a batch may be whose memory stays for the next one; Kafka's group.coordinator.cached.buffer.max.bytes.
const keptBytes = 1 << 20

// divisibleBytes is how large the batches of a divisible result get: well below the 1 MiB that max.message.bytes is by default.
const divisibleBytes = 256 << 10

// fitting is how many of the records, at least one, fill a batch.
func fitting(records []Record) int {
	size := 0
	for i, r := range records {
		if size += len(r.Key) + len(r.Value); size > divisibleBytes && i > 0 {
			return i
		}
	}
	return len(records)
}
