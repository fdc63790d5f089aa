package log

import (
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// LocalStartOffset is the first offset that is on disk here, the log start or behind it. What lies between the two is in the
// object store alone; only a tiered log has that. StartOffset <= LocalStartOffset <= EndOffset.
func (l *Log) LocalStartOffset() wire.Offset {
	segments := *l.segments.Load()
	return max(segments[0].base, l.StartOffset())
}

// SetTiered says up to where, exclusive, the object store holds the log from its start on: by offsets and leader epochs, in a
// manifest that was read back. Local retention ends there. It is forgotten when the log is closed, cut below it or begun anew.
func (l *Log) SetTiered(end wire.Offset) { l.tieredEnd.Store(int64(end)) }

// TieredEndOffset is what SetTiered said last; wire.NoOffset while nothing is known.
func (l *Log) TieredEndOffset() wire.Offset { return wire.Offset(l.tieredEnd.Load()) }

// tiered tells whether the log's older part may be in the object store alone.
func (l *Log) tiered() bool { return l.config.Load().RemoteStorageEnable }

// limits are what Retain goes by, besides the log start.
type limits struct {
	end    wire.Offset // segments that end behind it stay
	active bool        // the active segment may go
	bytes  int64       // of what is here; -1: no limit
	ms     int64       // -1: no limit
}

// asTotal stands in local.retention.* for the value of retention.*.
const asTotal = -2

func (l *Log) limits(cfg *config.Topic) limits {
	total := limits{end: math.MaxInt64, active: true, bytes: -1, ms: -1}
	if cfg.CleanupDelete {
		total.bytes, total.ms = cfg.RetentionBytes, cfg.RetentionMs
	}
	if !cfg.RemoteStorageEnable {
		return total
	}
	if wire.IsInternalTopic(l.tp.Topic) {
		return limits{bytes: -1, ms: -1} // whoever coordinates reads them here (safety.md 25)
	}
	local := limits{end: l.TieredEndOffset(), bytes: total.bytes, ms: total.ms}
	if cfg.RemoteLogCopyDisable {
		return local
	}
	if !cfg.CleanupCompact {
		local.bytes, local.ms = cfg.RetentionBytes, cfg.RetentionMs // also where nothing is ever deleted from the whole
	}
	if cfg.LocalRetentionBytes != asTotal {
		local.bytes = cfg.LocalRetentionBytes
	}
	if cfg.LocalRetentionMs != asTotal {
		local.ms = cfg.LocalRetentionMs
	}
	return local
}

// startUnsaved notes that the checkpoint of log starts has to name a tiered log.
func (l *Log) startUnsaved() {
	if l.tiered() && wire.Offset(l.startSaved.Load()) == wire.NoOffset {
		markChanged(&l.env.disk.startChanged)
	}
}

// saveStart makes the start of a tiered log durable before segments go: neither what went may be taken for the start of the log
// later, nor may the start come back to what was in them alone.
func (l *Log) saveStart() error {
	if l.env.saveStarts == nil || wire.Offset(l.startSaved.Load()) == l.StartOffset() {
		return nil
	}
	if err := l.env.saveStarts(); err != nil {
		return l.env.fault("save the log start", err)
	}
	return nil
}

// StartFromTier drops what is here and starts an empty local log at an offset, of a partition that the object store holds from
// logStart up to there: epochs are its lineage, producerSnapshot a .snapshot file as of at, empty for none. It is durable when
// it returns. What a crash meanwhile leaves ends below at: MayLackEnd holds until Verified, and the caller looks at the manifest
// again. Nothing is known to be tiered until SetTiered.
func (l *Log) StartFromTier(now time.Time, at, logStart wire.Offset, epochs []EpochEntry, producerSnapshot []byte) error {
	if logStart < 0 || at < logStart {
		return fmt.Errorf("%w: log start %d, first offset %d", ErrOffsetOutOfRange, logStart, at)
	}
	var producers producerState
	if len(producerSnapshot) > 0 {
		entries, err := DecodeProducerSnapshot(producerSnapshot)
		if err != nil {
			return err
		}
		producers = restoreProducers(entries, at, now.UnixMilli())
	}
	for i, e := range epochs {
		if i > 0 && (e.Epoch <= epochs[i-1].Epoch || e.Start < epochs[i-1].Start) {
			return fmt.Errorf("%w: epoch %d at %d out of order", errCheckpoint, e.Epoch, e.Start)
		}
	}
	below := epochCache(slices.Clone(epochs)).truncateEnd(at).truncateStart(logStart)
	l.maintenance.Lock()
	defer l.maintenance.Unlock()
	if err := l.inPlace(); err != nil {
		return err
	}
	if err := l.noteUnverified(); err != nil {
		return l.env.fault("start the log anew", err)
	}
	if at > logStart {
		if err := l.noteRemote(); err != nil {
			return l.env.fault("start the log anew", err)
		}
	}
	l.start.Store(int64(logStart))
	if err := l.saveStart(); err != nil {
		return err
	}
	err := l.restartMaintained(now, beginning{at: at, start: logStart, epochs: below, producers: producers, prepare: func() error {
		return l.keepBeginning(at, below, producerSnapshot)
	}})
	if err != nil || !l.newDir {
		return err
	}
	err = errors.Join(syncFile(l.env.fs, path.Join(l.dir, partitionFile)), l.env.fs.SyncDir(path.Dir(l.dir)))
	if err != nil {
		return l.env.fault("start the log anew", err)
	}
	return nil
}

// keepBeginning brings to disk what a log from the tier knows of what lies below it.
func (l *Log) keepBeginning(at wire.Offset, epochs epochCache, producerSnapshot []byte) error {
	if len(producerSnapshot) > 0 {
		if err := writeFile(l.env.fs, l.snapshotPath(at), producerSnapshot); err != nil {
			return err
		}
		l.snapshotFiles = append(l.snapshotFiles, at)
	}
	return l.writeEpochs(at)
}
