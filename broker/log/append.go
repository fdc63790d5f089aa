package log

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"time"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// Origin says who appends, and so what is checked.
type Origin int8

// The origins of an append.
const (
	Client      Origin = iota // producer epochs and sequences are checked, duplicates recognised
	Coordinator               // group and transaction coordinators: epochs are checked, control batches allowed
	Replication               // the leader's own bytes: nothing is checked, producer state follows
)

// AppendInfo is what an append did.
type AppendInfo struct {
	First         wire.Offset // offset of the first record
	Last          wire.Offset // offset of the last record
	MaxTimestamp  int64       // largest timestamp, milliseconds; -1 when none
	LogAppendTime int64       // what the answer carries: the append time with LogAppendTime, else -1
	LogStart      wire.Offset
	Bytes         int  // appended; 0 for a duplicate
	Duplicate     bool // the batch was there already: First and Last are those of the first time
}

// appendSummary is what has to be known of batches before they are appended.
type appendSummary struct {
	first, last wire.Offset
	maxTime     int64
	appendTime  bool
}

// AppendAsLeader appends whole, validated batches (record.Validate) with the next offsets. It patches base offset and
// leader epoch in batches, which it does not keep. A client's epoch, sequence and transaction errors are *wire.Error with
// codes 47, 45 and 48 (87 for several batches with a producer id at once); ErrRecordListTooLarge if batches don't fit into
// one segment. A full disk is ErrStorage: nothing is appended and the log goes on. After any other ErrStorage the log
// directory is offline. With flush.messages reached it returns after the flush.
func (l *Log) AppendAsLeader(now time.Time, batches []byte, epoch wire.LeaderEpoch, origin Origin) (AppendInfo, error) {
	l.mu.Lock()
	info, err := l.appendAsLeaderLocked(now, batches, epoch, origin)
	return l.appended(info, err)
}

func (l *Log) appendAsLeaderLocked(now time.Time, batches []byte, epoch wire.LeaderEpoch, origin Origin) (AppendInfo, error) {
	if err := l.writableLocked(); err != nil {
		return AppendInfo{}, err
	}
	if size := l.config.Load().SegmentBytes; len(batches) > size {
		return AppendInfo{}, fmt.Errorf("%w: %d bytes for a segment of %d", ErrRecordListTooLarge, len(batches), size)
	}
	if info, done, err := l.checkProducersLocked(batches, origin); done || err != nil {
		return info, err
	}
	sum := appendSummary{first: l.EndOffset(), maxTime: record.NoTimestamp}
	next := sum.first
	for rest := batches; len(rest) > 0; {
		var b record.Batch
		var err error
		if b, rest, err = record.Next(rest); err != nil {
			return AppendInfo{}, wire.NewError(wire.CorruptMessage, err.Error())
		}
		b.SetBaseOffset(next)
		b.SetLeaderEpoch(epoch)
		next = b.NextOffset()
		sum.maxTime = max(sum.maxTime, b.MaxTimestamp())
		sum.appendTime = b.TimestampType() == record.LogAppendTime
	}
	sum.last = next - 1
	return l.writeLocked(now, batches, sum)
}

// checkProducersLocked verifies epochs and sequences before anything is changed. done is true for a duplicate.
func (l *Log) checkProducersLocked(batches []byte, origin Origin) (info AppendInfo, done bool, err error) {
	producers := 0
	for rest := batches; len(rest) > 0; {
		var b record.Batch
		if b, rest, err = record.Next(rest); err != nil {
			return info, false, wire.NewError(wire.CorruptMessage, err.Error())
		}
		if !b.HasProducerID() {
			continue
		}
		if producers++; origin == Client {
			if producers > 1 {
				return info, false, wire.NewError(wire.InvalidRecord, "several batches with a producer id")
			}
			known, ok, err := l.duplicateLocked(b)
			if err != nil {
				return info, false, err
			}
			if ok {
				return AppendInfo{
					First: known.first(), Last: known.last, MaxTimestamp: known.timestamp, LogAppendTime: appendTimeOf(b, known.timestamp),
					LogStart: l.StartOffset(), Duplicate: true,
				}, true, nil
			}
		}
		if err := l.producers.check(b, origin); err != nil {
			return info, false, err
		}
	}
	return info, false, nil
}

func appendTimeOf(b record.Batch, timestamp int64) int64 {
	if b.TimestampType() == record.LogAppendTime {
		return timestamp
	}
	return record.NoTimestamp
}

// AppendAsFollower appends a leader's batches verbatim, whose offsets must not lie below EndOffset (else
// ErrOffsetOutOfRange); their checksums are verified first. Otherwise as AppendAsLeader.
func (l *Log) AppendAsFollower(now time.Time, batches []byte) (AppendInfo, error) {
	l.mu.Lock()
	info, err := l.appendAsFollowerLocked(now, batches)
	return l.appended(info, err)
}

func (l *Log) appendAsFollowerLocked(now time.Time, batches []byte) (AppendInfo, error) {
	if err := l.writableLocked(); err != nil {
		return AppendInfo{}, err
	}
	next := l.EndOffset()
	for rest := batches; len(rest) > 0; {
		var b record.Batch
		var err error
		if b, rest, err = record.Next(rest); err == nil {
			err = b.Check()
		}
		if err != nil {
			return AppendInfo{}, wire.NewError(wire.CorruptMessage, err.Error())
		}
		if b.BaseOffset() < next {
			return AppendInfo{}, fmt.Errorf("%w: batch at %d behind %d", ErrOffsetOutOfRange, b.BaseOffset(), next)
		}
		next = b.NextOffset()
	}
	var total AppendInfo
	for len(batches) > 0 {
		piece, sum := l.splitLocked(batches)
		info, err := l.writeLocked(now, piece, sum)
		if err != nil {
			return total, err
		}
		batches = batches[len(piece):]
		if total.Bytes == 0 {
			total.First, total.MaxTimestamp, total.LogAppendTime = info.First, info.MaxTimestamp, info.LogAppendTime
		}
		total.Last, total.LogStart = info.Last, info.LogStart
		total.MaxTimestamp = max(total.MaxTimestamp, info.MaxTimestamp)
		total.Bytes += info.Bytes
	}
	return total, nil
}

// splitLocked takes as many of a leader's batches as go into one segment, at least one.
func (l *Log) splitLocked(batches []byte) (piece []byte, sum appendSummary) {
	sum.maxTime = record.NoTimestamp
	limit, size := l.config.Load().SegmentBytes, 0
	for rest := batches; len(rest) > 0; {
		b, after, _ := record.Next(rest) // looked at already
		if size > 0 && (size+len(b) > limit || b.LastOffset()-sum.first > math.MaxInt32) {
			break
		}
		if size == 0 {
			sum.first = b.BaseOffset()
		}
		size += len(b)
		sum.last = b.LastOffset()
		sum.maxTime = max(sum.maxTime, b.MaxTimestamp())
		sum.appendTime = b.TimestampType() == record.LogAppendTime
		rest = after
	}
	return batches[:size], sum
}

// appended ends an append begun under the lock: it unlocks, and does what may block.
func (l *Log) appended(info AppendInfo, err error) (AppendInfo, error) {
	register := err == nil && info.Bytes > 0 && !l.dirty
	if register {
		l.dirty = true
	}
	l.mu.Unlock()
	if register {
		l.env.dirty.add(l)
	}
	if err == nil && int64(info.Last+1-l.RecoveryPoint()) >= l.config.Load().FlushMessages && (info.Bytes > 0 || info.Duplicate) {
		err = l.flushTo(info.Last + 1)
	}
	return info, err
}

func (l *Log) writableLocked() error {
	if l.closed {
		return errClosed
	}
	return l.env.disk.check()
}

var errClosed = fmt.Errorf("%w: log is closed", ErrStorage)

// inPlace is nil where files of the log may be written: its directory is online, and has the name that it had. It needs maintenance.
func (l *Log) inPlace() error {
	if l.moved {
		return errClosed
	}
	return l.env.disk.check()
}

// writeLocked rolls if it must, writes bytes once, and takes the batches into indexes, epochs and producer state. What a
// crash leaves is a prefix of bytes, which recovery cuts at the last whole batch.
func (l *Log) writeLocked(now time.Time, bytes []byte, sum appendSummary) (AppendInfo, error) {
	if len(bytes) == 0 {
		end := l.EndOffset()
		return AppendInfo{First: end, Last: end - 1, MaxTimestamp: record.NoTimestamp, LogAppendTime: record.NoTimestamp, LogStart: l.StartOffset()}, nil
	}
	s := l.active()
	if due, err := l.rollDueLocked(now, s, len(bytes), sum); err != nil {
		return AppendInfo{}, err
	} else if due {
		if err := l.rollLocked(now, sum.first, sum.last); err != nil {
			return AppendInfo{}, err
		}
		s = l.active()
	}
	h, err := s.open()
	if err != nil {
		return AppendInfo{}, l.env.fault("open segment", err)
	}
	defer h.drop()
	position := s.size.Load()
	if position == 0 {
		s.since = now
	}
	s.reserve(h, position, int64(len(bytes)))
	if n, err := h.file.WriteAt(bytes, position); err != nil {
		s.reserved = 0
		return AppendInfo{}, l.undoWrite(h, position, n, err)
	}
	s.size.Store(position + int64(len(bytes)))
	l.takeLocked(now, s, bytes, position)
	l.end.set(sum.last+1, s.base, position+int64(len(bytes)))
	if l.unflushedFrom.IsZero() {
		l.unflushedFrom = now
	}
	info := AppendInfo{First: sum.first, Last: sum.last, MaxTimestamp: sum.maxTime, LogAppendTime: record.NoTimestamp, LogStart: l.StartOffset(), Bytes: len(bytes)}
	if sum.appendTime {
		info.LogAppendTime = sum.maxTime
	}
	return info, nil
}

// undoWrite cuts the n bytes that a failed write has left. On a full disk the log goes on. The cut is synced, the one sync under Log.mu:
// else a power loss could bring the piece back when nobody looks there any more, after a crash of the process and a clean stop.
func (l *Log) undoWrite(h *handle, position int64, n int, err error) error {
	if errors.Is(err, vfs.ErrNoSpace) {
		cut := h.file.Truncate(position)
		if cut == nil && n > 0 {
			cut = syncData(h.file)
		}
		if cut != nil {
			return l.env.fault("cut a partial write", cut)
		}
	}
	return l.env.fault("append", err)
}

// takeLocked takes batches that were written at position into all that follows the log.
func (l *Log) takeLocked(now time.Time, s *segment, bytes []byte, position int64) {
	for rest := bytes; len(rest) > 0; {
		b, after, _ := record.Next(rest) // looked at already
		rest = after
		if err := s.note(b, position); err != nil && !errors.Is(err, vfs.ErrNoSpace) {
			_ = l.env.fault("write index", err) // the batch is appended all the same; the next one is refused
		}
		position += int64(len(b))
		if epoch := b.LeaderEpoch(); epoch > l.epochs.Load().latest() {
			l.assignEpochLocked(epoch, b.BaseOffset())
		}
		if b.HasProducerID() {
			if aborted, ok := l.takeProducerLocked(b, now.UnixMilli()); ok {
				if err := s.noteAborted(aborted); err != nil {
					_ = l.env.fault("write transaction index", err)
				}
			}
		}
	}
}

// takeProducerLocked brings the producer state up to a batch. ok tells that the batch aborted a transaction.
func (l *Log) takeProducerLocked(b record.Batch, nowMs int64) (aborted AbortedTransaction, ok bool) {
	aborted, ok = l.producers.follow(b, nowMs)
	l.publishUnstableLocked()
	return aborted, ok
}

// rollDueLocked says whether bytes need a new segment (behaviour of LogSegment.shouldRoll).
func (l *Log) rollDueLocked(now time.Time, s *segment, bytes int, sum appendSummary) (bool, error) {
	cfg := l.config.Load()
	size := s.size.Load()
	if size > int64(cfg.SegmentBytes)-int64(bytes) && size > 0 || sum.last-s.base > math.MaxInt32 || s.full() {
		return true, nil
	}
	if size == 0 {
		return false, nil
	}
	age, err := l.ageLocked(now, s, sum.maxTime)
	return age > cfg.SegmentMs-s.jitter(), err
}

// ageLocked is how long a segment has waited for its roll: from its first batch's timestamp to timestamp, or by the clock where
// there are none.
func (l *Log) ageLocked(now time.Time, s *segment, timestamp int64) (int64, error) {
	first, err := l.firstTimeLocked(s)
	if err != nil {
		return 0, err
	}
	if first >= 0 {
		return timestamp - first, nil
	}
	return now.UnixMilli() - s.created.UnixMilli(), nil
}

// firstTimeLocked is the timestamp of a segment's first batch, record.NoTimestamp where it has none.
func (l *Log) firstTimeLocked(s *segment) (int64, error) {
	if s.firstTime != unknownTime {
		return s.firstTime, nil
	}
	h, err := s.open()
	if err != nil {
		return 0, l.env.fault("open segment", err)
	}
	defer h.drop()
	w := walk(h.file, 0, s.size.Load(), s.damages())
	defer w.close()
	s.firstTime = record.NoTimestamp
	if header, _, err := w.next(); err == nil {
		s.firstTime = header.MaxTimestamp()
	}
	return s.firstTime, nil
}

// jitter is the part of segment.jitter.ms that a segment rolls early, so that not all logs roll at once. It is drawn from
// the segment's name, which a restart does not change.
func (s *segment) jitter() int64 {
	cfg := s.config.Load()
	limit := min(cfg.SegmentJitterMs, cfg.SegmentMs)
	if limit <= 0 {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(s.path(logSuffix))) // never fails
	return int64(h.Sum64() % uint64(limit))
}
