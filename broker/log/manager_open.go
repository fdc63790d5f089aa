package log

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// Files of a log directory beside its partitions and checkpoints.
const (
	lockFile  = ".lock"
	cleanFile = ".kafka_cleanshutdown"
	bootFile  = "boot-id" // Tidemark's own: under which boot of the kernel the directory was written
)

// OpenManager locks and reads the log directories and opens every log. A directory that fails is Offline; it is an error
// if none is left, if one is locked, if one belongs to another cluster, incarnation or broker, or if a partition is there
// twice.
func OpenManager(now time.Time, o ManagerOptions) (*Manager, error) {
	if o.Run == nil {
		o.Run = func(n int, work func(int)) {
			for i := range n {
				work(i)
			}
		}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	m := &Manager{
		o: o, files: &openFiles{}, trash: &trash{}, dirty: &dirtyLogs{}, sealed: &dirtyLogs{}, rolled: &dirtyLogs{},
		logs: map[wire.TopicPartition]*Log{}, unopened: map[wire.TopicPartition]found{},
	}
	err := m.openDirs()
	if err == nil {
		err = m.loadLogs(now)
	}
	if err == nil {
		err = m.begin()
	}
	if err != nil {
		for _, d := range m.dirs {
			d.unlock()
		}
		return nil, err
	}
	return m, nil
}

func (d *logDir) unlock() {
	if d.lock != nil {
		_ = d.lock.Close() // dies with the process at the latest
		d.lock = nil
	}
}

func (m *Manager) openDirs() error {
	seen := map[wire.TopicID]string{}
	for _, p := range m.o.Dirs {
		d := &logDir{path: path.Clean(p), clean: -1, departed: map[wire.TopicPartition]struct{}{}}
		d.env = &environment{
			fs: m.o.FS, logger: m.o.Logger.With("log_dir", d.path), disk: &disk{}, files: m.files, trash: m.trash, dirty: m.dirty, sealed: m.sealed,
			rolled: m.rolled, yield: m.o.Yield,
		}
		d.env.saveRecoveryPoints = func() error { return m.writeCheckpoint(d, recoveryPointFile) }
		d.env.saveStarts = func() error { return m.writeCheckpoint(d, logStartFile) }
		m.dirs = append(m.dirs, d)
		err := m.openDir(d)
		if errors.Is(err, vfs.ErrLocked) || errors.Is(err, errIdentity) {
			return err
		}
		if err != nil {
			_ = d.env.fault("open log directory", notFull{err})
			continue
		}
		if other, ok := seen[d.meta.DirectoryID]; ok {
			return fmt.Errorf("%w: %s and %s have the same directory.id", errIdentity, other, d.path)
		}
		seen[d.meta.DirectoryID] = d.path
	}
	if len(m.Offline()) == len(m.dirs) {
		return fmt.Errorf("%w: no log directory is online", ErrStorage)
	}
	return nil
}

// notFull hides that an error came from a full disk: a directory that can't be opened, or a sync that fails, takes the directory
// offline whatever the reason.
type notFull struct{ error }

var errIdentity = errors.New("log directory belongs to somebody else")

func (m *Manager) openDir(d *logDir) (err error) {
	if d.lock = m.o.Locks.take(d.path); d.lock == nil {
		if d.lock, err = lockDir(m.o.FS, d.path); err != nil {
			return err
		}
	}
	meta, ok, err := ReadMeta(m.o.FS, d.path)
	switch {
	case errors.Is(err, ErrMeta):
		return fmt.Errorf("%w: %w", errIdentity, err)
	case err != nil:
		return err
	case !ok:
		if err := syncParents(m.o.FS, d.path); err != nil {
			return err
		}
		d.meta = Meta{ClusterID: m.o.ClusterID, ClusterIncarnation: m.o.ClusterIncarnation, BrokerID: m.o.BrokerID, DirectoryID: m.o.NewUUID()}
		if err := writeFile(m.o.FS, path.Join(d.path, metaFile), d.meta.format()); err != nil {
			return err
		}
	case meta.ClusterID != m.o.ClusterID || meta.ClusterIncarnation != m.o.ClusterIncarnation || meta.BrokerID != m.o.BrokerID:
		return fmt.Errorf("%w: %s is of cluster %s (incarnation %d), broker %d; this is cluster %s (incarnation %d), broker %d", errIdentity,
			d.path, meta.ClusterID, meta.ClusterIncarnation, meta.BrokerID, m.o.ClusterID, m.o.ClusterIncarnation, m.o.BrokerID)
	default:
		d.meta = meta
	}
	return m.readStop(d)
}

// cleanMarker is what Kafka writes into .kafka_cleanshutdown.
type cleanMarker struct {
	Version     int              `json:"version"`
	BrokerEpoch wire.BrokerEpoch `json:"brokerEpoch"`
}

// readStop finds out how the directory was left.
func (m *Manager) readStop(d *logDir) error {
	data, err := readFile(m.o.FS, path.Join(d.path, cleanFile))
	if err == nil {
		d.stop = StopClean
		var marker cleanMarker
		if json.Unmarshal(data, &marker) == nil {
			d.clean = marker.BrokerEpoch
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	boot, err := readFile(m.o.FS, path.Join(d.path, bootFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if m.o.BootID != "" && string(boot) == m.o.BootID {
		d.stop = StopProcessCrash
	}
	return nil
}

// found is a partition's directory.
type found struct {
	d  *logDir
	o  Options
	l  *Log
	tp wire.TopicPartition
}

// loadLogs opens what lies in the directories that are online.
func (m *Manager) loadLogs(now time.Time) error {
	var all []found
	where := map[wire.TopicPartition]int{} // place in all
	for _, d := range m.dirs {
		logs, err := m.listLogs(now, d)
		if err != nil {
			_ = d.env.fault("list log directory", err)
			continue
		}
		for _, f := range logs {
			i, twice := where[f.tp]
			switch {
			case !twice:
				where[f.tp] = len(all)
				all = append(all, f)
			case m.isShell(f.o.Dir):
				m.clearAway(f)
			case m.isShell(all[i].o.Dir):
				m.clearAway(all[i])
				all[i] = f
			default:
				stays, goes, err := m.choose(all[i], f)
				if err == nil {
					err = m.setAside(goes)
				}
				if err != nil {
					return err
				}
				all[i] = stays
			}
		}
	}
	configs := map[string]config.Topic{}
	for i := range all {
		topic := all[i].tp.Topic
		if _, ok := configs[topic]; !ok {
			configs[topic] = m.o.DefaultConfig(topic)
		}
		all[i].o.Config = configs[topic]
	}
	m.o.Run(len(all), func(i int) {
		f := &all[i]
		if f.d.env.disk.check() != nil {
			return
		}
		l, err := Open(now, f.o)
		if err != nil {
			f.d.env.logger.Error("log can't be opened", "topic", f.tp.Topic, "partition", f.tp.Partition, "err", err)
			return
		}
		f.l = l
	})
	for _, f := range all {
		switch {
		case f.d.env.disk.check() != nil:
		case f.l != nil:
			m.logs[f.tp] = f.l
			f.l.env.logs++
		default:
			m.unopened[f.tp] = f
		}
	}
	return nil
}

// isShell tells whether a partition's directory holds nothing: neither a record nor whose it is. That is what is left where its making
// failed and a power loss undid its removal; the partition was made elsewhere since.
func (m *Manager) isShell(dir string) bool {
	names, err := m.o.FS.List(dir)
	if err != nil {
		return false
	}
	for _, name := range names {
		info, err := m.o.FS.Stat(path.Join(dir, name))
		if err != nil || info.Size > 0 {
			return false
		}
	}
	return true
}

// clearAway removes such a directory, at once: by the next Sweep a log may have its name.
func (m *Manager) clearAway(shell found) {
	if err := m.o.FS.RemoveAll(shell.o.Dir); err != nil {
		shell.d.env.logger.Warn("an empty partition directory can't be removed", "dir", shell.o.Dir, "err", err)
	}
}

// choose tells which of two directories of one partition is that of the topic which has its name now, by their partition.metadata.
func (m *Manager) choose(a, b found) (stays, goes found, err error) {
	now := m.o.TopicID(a.tp.Topic)
	belongs := func(f found) int {
		id, err := readCheckpoint(m.o.FS, path.Join(f.o.Dir, partitionFile), parsePartitionMetadata)
		switch {
		case err != nil || id.IsZero():
			return 1 // nobody knows
		case id == now:
			return 2
		}
		return 0
	}
	switch first, second := belongs(a), belongs(b); {
	case first > second || first == 0 && second == 0:
		return a, b, nil
	case first < second:
		return b, a, nil
	}
	return a, b, fmt.Errorf("%w: %s is in %s and in %s", errIdentity, a.tp, a.d.path, b.d.path)
}

// setAside keeps a directory under another name, as MarkStray does.
func (m *Manager) setAside(f found) error {
	to := path.Join(f.d.path, parkedDirName(f.tp, m.o.NewUUID(), straySuffix))
	f.d.env.logger.Warn("a partition of a former topic is set aside", "dir", f.o.Dir, "to", to)
	if err := m.o.FS.Rename(f.o.Dir, to); err != nil {
		return fmt.Errorf("set %s aside: %w", f.o.Dir, err)
	}
	m.depart(f.d, f.tp)
	return nil
}

func (m *Manager) listLogs(now time.Time, d *logDir) ([]found, error) {
	if d.env.disk.check() != nil {
		return nil, nil //nolint:nilerr // a directory that is offline has no logs, and has been told of
	}
	names, err := m.o.FS.List(d.path)
	if err != nil {
		return nil, err
	}
	var offsets [len(checkpointFiles)]map[wire.TopicPartition]wire.Offset
	for i, name := range checkpointFiles {
		offsets[i], err = readCheckpoint(m.o.FS, path.Join(d.path, name), ParseOffsetCheckpoint)
		if errors.Is(err, errCheckpoint) {
			d.env.logger.Warn("checkpoint is dropped", "path", path.Join(d.path, name), "err", err)
			err = nil
		}
		if err != nil {
			return nil, err
		}
	}
	var logs []found
	for _, name := range names {
		if strings.HasSuffix(name, deleteSuffix) {
			m.trash.add(path.Join(d.path, name), now)
			continue
		}
		tp, ok := parseDirName(name)
		if !ok {
			continue
		}
		o := m.logOptions(d, tp, wire.TopicID{}, config.Topic{})
		o.Stop = d.stop
		o.RecoveryPoint, o.HighWatermark = offsets[0][tp], offsets[1][tp]
		if start, ok := offsets[2][tp]; ok {
			o.LogStart = start
		}
		for _, known := range offsets {
			delete(known, tp)
		}
		logs = append(logs, found{d: d, o: o, tp: tp})
	}
	for _, lost := range offsets {
		m.depart(d, slices.Collect(maps.Keys(lost))...)
	}
	return logs, nil
}

// begin notes that from here on the directories are written to: the clean marker goes, durably, so that it can't come back
// with data that a power loss took.
func (m *Manager) begin() error {
	for _, d := range m.dirs {
		if d.env.disk.check() != nil {
			continue
		}
		err := m.beginDir(d)
		if err != nil {
			_ = d.env.fault("begin to use log directory", notFull{err})
		}
	}
	if len(m.Offline()) == len(m.dirs) {
		return fmt.Errorf("%w: no log directory is online", ErrStorage)
	}
	return nil
}

func (m *Manager) beginDir(d *logDir) error {
	boot, err := readFile(m.o.FS, path.Join(d.path, bootFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if string(boot) != m.o.BootID {
		if err := writeFile(m.o.FS, path.Join(d.path, bootFile), []byte(m.o.BootID)); err != nil {
			return err
		}
	}
	if d.stop != StopClean {
		return nil
	}
	if err := removeFile(m.o.FS, path.Join(d.path, cleanFile)); err != nil {
		return err
	}
	return m.o.FS.SyncDir(d.path)
}
