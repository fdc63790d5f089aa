package log

import (
	"encoding/json"
	"errors"
	"maps"
	"path"
	"sync/atomic"
	"time"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// checkpointFiles are the checkpoints of a log directory, with the flags of disk in the same order.
var checkpointFiles = [...]string{recoveryPointFile, highWatermarkFile, logStartFile}

func (d *disk) flags() []*atomic.Bool {
	return []*atomic.Bool{&d.recoveryChanged, &d.watermarkChanged, &d.startChanged}
}

// Checkpoint writes recovery points, high watermarks and log starts of the directories where they changed. What changed before it
// was called is durable when it returns, also where somebody else has begun to write it. A full disk is ErrStorage; it is
// written the next time.
func (m *Manager) Checkpoint() error {
	var failed error
	for _, d := range m.dirs {
		if d.env.disk.check() == nil {
			failed = errors.Join(failed, m.checkpointDir(d))
		}
	}
	return failed
}

func (m *Manager) checkpointDir(d *logDir) error {
	d.writing.Lock()
	defer d.writing.Unlock()
	return m.checkpointDirLocked(d)
}

func (m *Manager) checkpointDirLocked(d *logDir) error {
	m.takeDeparted(d)
	var failed error
	for i, flag := range d.env.disk.flags() {
		if !flag.Swap(false) && len(d.settling) == 0 {
			continue
		}
		if err := m.writeCheckpointLocked(d, checkpointFiles[i]); err != nil {
			flag.Store(true)
			failed = errors.Join(failed, d.env.fault("write checkpoint", err))
		}
	}
	m.settled(d, failed == nil)
	return failed
}

// checkpointStarts is checkpointDir for log starts alone. The flag goes down and up again under the lock, as it does there: whoever finds it
// down relies on what was written.
func (m *Manager) checkpointStarts(d *logDir) {
	d.writing.Lock()
	defer d.writing.Unlock()
	changed := &d.env.disk.startChanged
	if !changed.Swap(false) {
		return
	}
	if err := m.writeCheckpointLocked(d, logStartFile); err != nil {
		changed.Store(true)
		_ = d.env.fault("write checkpoint", err)
	}
}

// depart notes partitions that are no longer in a directory, though its checkpoints may name them.
func (m *Manager) depart(d *logDir, partitions ...wire.TopicPartition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, tp := range partitions {
		d.departed[tp] = struct{}{}
	}
}

func (m *Manager) takeDeparted(d *logDir) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d.settling, d.departed = d.departed, map[wire.TopicPartition]struct{}{}
}

// settled ends what takeDeparted began.
func (m *Manager) settled(d *logDir, written bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !written {
		maps.Copy(d.departed, d.settling)
	}
	d.settling = nil
}

// unsettled tells whether checkpoints may name a partition that has gone.
func (m *Manager) unsettled(d *logDir, tp wire.TopicPartition) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	_, departed := d.departed[tp]
	_, settling := d.settling[tp]
	return departed || settling
}

// settleDeparted makes it durable that a partition has gone, before another of its name may come: a checkpoint knows names alone,
// and a power loss must not bring the former directory back beside the new one.
func (m *Manager) settleDeparted(tp wire.TopicPartition) error {
	for _, d := range m.dirs {
		if err := m.settleDepartedFrom(d, tp); err != nil {
			return err
		}
	}
	return nil
}

func (m *Manager) settleDepartedFrom(d *logDir, tp wire.TopicPartition) error {
	if !m.unsettled(d, tp) {
		return nil
	}
	d.writing.Lock() // of a partition that settles, until it has
	defer d.writing.Unlock()
	if !m.unsettled(d, tp) || d.env.disk.check() != nil {
		return nil
	}
	return m.checkpointDirLocked(d)
}

// writeCheckpoint writes one of a directory's checkpoints.
func (m *Manager) writeCheckpoint(d *logDir, name string) error {
	d.writing.Lock()
	defer d.writing.Unlock()
	return m.writeCheckpointLocked(d, name)
}

// writeCheckpointLocked syncs the directory, too.
func (m *Manager) writeCheckpointLocked(d *logDir, name string) error {
	offsets := map[wire.TopicPartition]wire.Offset{}
	logs := m.logsOf(d)
	for _, l := range logs {
		switch name {
		case recoveryPointFile:
			offsets[l.tp] = l.RecoveryPoint()
		case highWatermarkFile:
			offsets[l.tp] = l.HighWatermark()
		case logStartFile:
			// Where the first segment says it, durably, the file need not, nor that nothing is below. That of a tiered log does not say it.
			if start := l.StartOffset(); l.tiered() || int64(start) != l.firstSynced.Load() && start > 0 {
				offsets[l.tp] = start
			} else {
				l.startSaved.Store(int64(wire.NoOffset))
			}
		}
	}
	m.keepUnopened(d, name, offsets)
	if err := writeFile(m.o.FS, path.Join(d.path, name), formatOffsetCheckpoint(offsets)); err != nil || name != logStartFile {
		return err
	}
	for _, l := range logs {
		if start, ok := offsets[l.tp]; ok {
			l.startSaved.Store(int64(start))
		}
	}
	return nil
}

// keepUnopened carries over what the checkpoint said of logs that could not be opened yet.
func (m *Manager) keepUnopened(d *logDir, name string, offsets map[wire.TopicPartition]wire.Offset) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for tp, f := range m.unopened {
		if f.d != d {
			continue
		}
		switch name {
		case recoveryPointFile:
			offsets[tp] = f.o.RecoveryPoint
		case highWatermarkFile:
			offsets[tp] = f.o.HighWatermark
		case logStartFile:
			if f.o.LogStart != wire.NoOffset {
				offsets[tp] = f.o.LogStart
			}
		}
	}
}

// Close flushes every log, writes snapshots and checkpoints, and leaves the clean-shutdown markers, with the broker's epoch. Logs
// in which nothing happened cost nothing. A directory where something failed, or holds a log that was not opened, is left without
// a marker.
func (m *Manager) Close(now time.Time, epoch wire.BrokerEpoch) error {
	logs := m.Logs()
	failures := make([]error, len(logs))
	m.o.Run(len(logs), func(i int) { failures[i] = logs[i].Close(now) })
	unclean := map[*environment]bool{}
	m.mu.RLock()
	for _, f := range m.unopened {
		unclean[f.d.env] = true // as it was left before
	}
	m.mu.RUnlock()
	for i, err := range failures {
		if err != nil {
			unclean[logs[i].env] = true
		}
	}
	failed := errors.Join(errors.Join(failures...), m.Checkpoint())
	for _, d := range m.dirs {
		if err := d.env.disk.check(); err == nil && !unclean[d.env] && !d.changed() {
			marker, err := json.Marshal(cleanMarker{BrokerEpoch: epoch})
			if err == nil {
				err = writeFile(m.o.FS, path.Join(d.path, cleanFile), marker)
			}
			if err != nil {
				failed = errors.Join(failed, d.env.fault("write clean-shutdown marker", err))
			}
		}
		d.unlock()
	}
	return failed
}

// changed tells whether a checkpoint is still to be written.
func (d *logDir) changed() bool {
	for _, flag := range d.env.disk.flags() {
		if flag.Load() {
			return true
		}
	}
	return false
}
