package log

import (
	"errors"
	"slices"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// AbortedTransaction is an entry of the transaction index.
type AbortedTransaction struct {
	ProducerID       wire.ProducerID
	First            wire.Offset // first offset of the transaction
	Last             wire.Offset // offset of its abort marker
	LastStableOffset wire.Offset // at the time of the marker
}

// follow brings the state up to a batch that was appended. ok tells that the batch aborted a transaction.
func (s *producerState) follow(b record.Batch, nowMs int64) (aborted AbortedTransaction, ok bool) {
	var marker *record.EndTxnMarker
	if b.IsControl() {
		m, isEnd, err := record.ReadEndTxnMarker(b)
		if err != nil || !isEnd {
			return aborted, false
		}
		marker = &m
	}
	t, ended := s.apply(b, marker, nowMs)
	if !ended || marker.Type != record.Abort {
		return aborted, false
	}
	return AbortedTransaction{ProducerID: t.producer, First: t.first, Last: t.last, LastStableOffset: s.lastStable(t.last)}, true
}

// noteAborted adds an entry to the transaction index.
func (s *segment) noteAborted(t AbortedTransaction) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.readAbortedLocked(); err != nil {
		return err
	}
	f, err := openOrCreate(s.env.fs, s.path(txnSuffix))
	if err != nil {
		return err
	}
	_, err = f.WriteAt(appendTxnEntry(nil, t), int64(len(s.aborted)*txnEntrySize))
	s.aborted = append(s.aborted, t)
	return errors.Join(err, f.Close())
}

// readAbortedLocked reads the transaction index of a segment that was loaded from disk.
func (s *segment) readAbortedLocked() error {
	if !s.txnFile {
		return nil
	}
	if s.gone {
		return errGone
	}
	data, err := readFile(s.env.fs, s.path(txnSuffix))
	if err != nil {
		return err
	}
	list, err := DecodeTransactionIndex(data)
	if err != nil {
		return err
	}
	s.aborted, s.txnFile = list, false
	return nil
}

// abortedList is the transaction index.
func (s *segment) abortedList() ([]AbortedTransaction, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.readAbortedLocked()
	return slices.Clip(s.aborted), err
}

// setAborted replaces the transaction index by what a scan found.
func (s *segment) setAborted(list []AbortedTransaction) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.aborted, s.txnFile = list, false
	if len(list) == 0 {
		return removeFile(s.env.fs, s.path(txnSuffix))
	}
	var b []byte
	for _, t := range list {
		b = appendTxnEntry(b, t)
	}
	return replaceFile(s.env.fs, s.path(txnSuffix), b)
}

// AbortedTransactions lists those with records in [from, to), for a read_committed fetch of that range.
func (l *Log) AbortedTransactions(from, to wire.Offset) ([]AbortedTransaction, error) {
	segments := *l.segments.Load()
	var found []AbortedTransaction
	for _, s := range segments[floorSegment(segments, from):] {
		list, err := s.abortedList()
		if errors.Is(err, errTxnIndex) {
			list, err = l.rebuildAborted(s)
		}
		if err != nil {
			return nil, l.env.fault("read transaction index", err)
		}
		for _, t := range list {
			if t.Last >= from && t.First < to {
				found = append(found, t)
			}
			if t.LastStableOffset >= to {
				return found, nil // all that began before to had ended
			}
		}
	}
	return found, nil
}
