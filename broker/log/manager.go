package log

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// ManagerOptions say where the log directories are and whose.
type ManagerOptions struct {
	FS        vfs.FS
	Dirs      []string  // log.dirs
	Locks     *DirLocks // of Dirs, which OpenManager takes over; nil: it locks them itself
	ClusterID string
	// ClusterIncarnation counts recoveries of the cluster from its bucket (safety.md 30).
	ClusterIncarnation int64
	BrokerID           wire.BrokerID
	// BootID is the kernel's boot id. Unknown ("") or another than the last one: an unclean stop counts as a power loss.
	BootID string
	// DefaultConfig is the effective configuration of a topic found on disk.
	DefaultConfig func(topic string) config.Topic
	// TopicID is that of the topic which has a name now, zero if there is none. Of two directories of one partition it tells the one
	// that is of a former topic: one whose disk had failed when the topic was deleted, or that a power loss has brought back.
	TopicID func(topic string) wire.TopicID
	// Run calls work(0) .. work(n-1), beside each other if it likes, and returns when all are done. nil: one by one.
	Run func(n int, work func(i int))
	// NewUUID makes directory ids and names of directories to be deleted.
	NewUUID func() [16]byte
	Logger  *slog.Logger // nil: silent
	Yield   func()       // as that of Options
}

// Manager holds the logs of a broker.
type Manager struct {
	o      ManagerOptions
	dirs   []*logDir
	files  *openFiles
	trash  *trash
	dirty  *dirtyLogs
	sealed *dirtyLogs
	rolled *dirtyLogs

	changing sync.Mutex // held over Create, Delete and MarkStray; the highest rank
	mu       sync.RWMutex
	logs     map[wire.TopicPartition]*Log  // guarded by mu, a leaf
	scrub    wire.TopicPartition           // guarded by mu: where the next Scrub begins
	unopened map[wire.TopicPartition]found // guarded by mu: there, but the disk was too full to open them
}

// logDir is one of log.dirs.
type logDir struct {
	path  string
	meta  Meta
	env   *environment
	lock  io.Closer
	stop  Stop
	clean wire.BrokerEpoch // of the last clean stop, -1 without one

	writing sync.Mutex // held over the writing of checkpoints; below Log.maintenance
	// departed are partitions that were taken away, or not found, since the checkpoints were written. Guarded by Manager.mu.
	departed map[wire.TopicPartition]struct{}
	// settling are those of them for which the checkpoints are being written. Guarded by Manager.mu.
	settling map[wire.TopicPartition]struct{}
}

// DirInfo is a row of DescribeLogDirs.
type DirInfo struct {
	Path  string
	ID    wire.TopicID // directory.id; zero if the directory could not be read
	Err   error        // why it is offline
	Usage vfs.Usage
	Logs  []*Log // by topic and partition
}

// Get finds a log.
func (m *Manager) Get(tp wire.TopicPartition) (*Log, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	l, ok := m.logs[tp]
	return l, ok
}

// Logs lists the logs by topic and partition.
func (m *Manager) Logs() []*Log {
	m.mu.RLock()
	logs := slices.Collect(maps.Values(m.logs))
	m.mu.RUnlock()
	slices.SortFunc(logs, func(a, b *Log) int { return comparePartitions(a.tp, b.tp) })
	return logs
}

func (m *Manager) logsOf(d *logDir) []*Log {
	return slices.DeleteFunc(m.Logs(), func(l *Log) bool { return l.env != d.env })
}

// Dirs describes the log directories.
func (m *Manager) Dirs() []DirInfo {
	infos := make([]DirInfo, len(m.dirs))
	for i, d := range m.dirs {
		infos[i] = DirInfo{Path: d.path, ID: d.meta.DirectoryID, Err: d.env.disk.check()}
		if infos[i].Err != nil {
			continue
		}
		infos[i].Logs = m.logsOf(d)
		if usage, err := m.o.FS.Usage(d.path); err == nil {
			infos[i].Usage = usage
		}
	}
	return infos
}

// Offline lists the directories that failed.
func (m *Manager) Offline() []string {
	var paths []string
	for _, d := range m.dirs {
		if d.env.disk.check() != nil {
			paths = append(paths, d.path)
		}
	}
	return paths
}

// CleanEpoch is the broker epoch of the last clean stop, or -1 if a directory was not stopped cleanly.
func (m *Manager) CleanEpoch() wire.BrokerEpoch {
	epoch := m.dirs[0].clean
	for _, d := range m.dirs[1:] {
		if d.clean != epoch {
			return -1
		}
	}
	return epoch
}

// Create makes the log of a new partition in the directory with the fewest logs; the one that is there already is returned
// as it is, also one that could not be opened before because the disk was full. A partition that may lie in a directory that is offline must not be created: the caller knows from the
// assignment. The files are durable after the log's first flush.
func (m *Manager) Create(now time.Time, tp wire.TopicPartition, id wire.TopicID, cfg config.Topic) (*Log, error) {
	return m.create(now, tp, id, cfg, false)
}

// CreateAnew is Create for a partition that is older than its log: what it held may be in the object store, and MayLackEnd holds,
// also after the next stop.
func (m *Manager) CreateAnew(now time.Time, tp wire.TopicPartition, id wire.TopicID, cfg config.Topic) (*Log, error) {
	return m.create(now, tp, id, cfg, true)
}

func (m *Manager) create(now time.Time, tp wire.TopicPartition, id wire.TopicID, cfg config.Topic, anew bool) (*Log, error) {
	if !wire.ValidTopicName(tp.Topic) || tp.Partition < 0 {
		return nil, fmt.Errorf("%w: %q", wire.InvalidTopic, tp)
	}
	m.changing.Lock()
	defer m.changing.Unlock()
	if l, ok := m.Get(tp); ok {
		if l.id != id {
			return nil, fmt.Errorf("%w: %s in %s, not %s", errTopicID, l.id, l.dir, id)
		}
		return l, nil
	}
	if err := m.settleDeparted(tp); err != nil {
		return nil, err
	}
	o, fresh, err := m.createOptions(tp, id, cfg)
	if err != nil {
		return nil, err
	}
	o.fresh, o.anew = fresh, fresh && anew
	l, err := Open(now, o)
	if err != nil {
		if fresh {
			// What is there of it would meet the next try, which may go to another directory, at the next start.
			err = errors.Join(err, m.o.FS.RemoveAll(o.Dir))
		}
		return nil, err
	}
	m.mu.Lock()
	delete(m.unopened, tp)
	m.logs[tp] = l
	l.env.logs++
	m.mu.Unlock()
	return l, nil
}

// createOptions say where a partition's log is to be; fresh tells that there is none yet.
func (m *Manager) createOptions(tp wire.TopicPartition, id wire.TopicID, cfg config.Topic) (o Options, fresh bool, err error) {
	m.mu.RLock()
	f, ok := m.unopened[tp]
	m.mu.RUnlock()
	if ok {
		f.o.TopicID, f.o.Config = id, cfg
		return f.o, false, nil
	}
	d := m.emptiest()
	if d == nil {
		return Options{}, false, fmt.Errorf("%w: no log directory is online", ErrStorage)
	}
	o = m.logOptions(d, tp, id, cfg)
	_, err = m.o.FS.Stat(o.Dir)
	return o, errors.Is(err, fs.ErrNotExist), nil // what is there belongs to somebody, and is not ours to remove
}

func (m *Manager) logOptions(d *logDir, tp wire.TopicPartition, id wire.TopicID, cfg config.Topic) Options {
	return Options{
		FS: m.o.FS, Dir: path.Join(d.path, tp.String()), TopicPartition: tp, TopicID: id, Config: cfg,
		LogStart: wire.NoOffset, env: d.env,
	}
}

// emptiest is the online directory with the fewest logs, the first of several.
func (m *Manager) emptiest() *logDir {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var best *logDir
	for _, d := range m.dirs {
		if d.env.disk.check() == nil && (best == nil || d.env.logs < best.env.logs) {
			best = d
		}
	}
	return best
}

// Delete takes a partition away; its files go by a later Sweep, file.delete.delay.ms from now. An error says that they stay where they
// are, as its directory has failed, and that the next start will find them.
func (m *Manager) Delete(now time.Time, tp wire.TopicPartition) error {
	return m.park(tp, deleteSuffix, func(l *Log, parked string) { m.trash.add(parked, now.Add(l.deleteDelay())) })
}

// MarkStray puts a partition that nobody can explain aside and keeps it. An error is as that of Delete.
func (m *Manager) MarkStray(_ time.Time, tp wire.TopicPartition) error {
	return m.park(tp, straySuffix, func(*Log, string) {})
}

// park renames a partition's directory, so that it is no log any more.
func (m *Manager) park(tp wire.TopicPartition, suffix string, then func(l *Log, parked string)) error {
	m.changing.Lock()
	defer m.changing.Unlock()
	l, ok := m.Get(tp)
	if !ok {
		return fmt.Errorf("%w: %s", wire.UnknownTopicOrPartition, tp)
	}
	root := path.Dir(l.dir)
	parked := path.Join(root, parkedDirName(tp, m.o.NewUUID(), suffix))
	err := l.moveAway(parked)
	m.mu.Lock()
	delete(m.logs, tp)
	l.env.logs--
	m.mu.Unlock()
	for _, d := range m.dirs {
		if d.env == l.env {
			m.depart(d, tp)
		}
	}
	if err == nil {
		then(l, parked)
	}
	return err
}

// moveAway closes the log without flushing and renames its directory; a power loss may bring the former name back, and the
// caller finds it again. Readers that have a segment open go on.
func (l *Log) moveAway(to string) error {
	l.maintenance.Lock()
	defer l.maintenance.Unlock()
	l.mu.Lock()
	l.closed, l.moved = true, true
	l.mu.Unlock()
	for _, s := range *l.segments.Load() {
		s.abandon()
	}
	if err := l.env.disk.check(); err != nil {
		return err
	}
	if err := l.env.fs.Rename(l.dir, to); err != nil {
		return l.env.fault("rename partition directory", err)
	}
	return nil
}

// FlushDue finishes sealed segments and flushes what flush.ms asks for, in every log with something to flush.
func (m *Manager) FlushDue(now time.Time) {
	for _, l := range m.dirty.take() {
		if err := l.FlushDue(now); err != nil && l.env.disk.check() == nil {
			l.env.logger.Warn("flush is put off", "topic", l.tp.Topic, "partition", l.tp.Partition, "err", err)
		}
		if !l.flushDone() {
			m.dirty.add(l)
		}
	}
}

// FlushSealed finishes and flushes what was sealed since the last call, so that neither a recovery nor what a power loss takes is longer
// than a segment, whatever flush.ms says. On a full disk it stays due, and FlushDue says why.
func (m *Manager) FlushSealed() {
	for _, l := range m.rolled.take() {
		if err := l.flushTo(l.active().base); err != nil && l.env.disk.check() == nil {
			m.rolled.add(l)
		}
	}
}

// Retain applies retention to every log. It tells how many segments went.
func (m *Manager) Retain(now time.Time) (segments int) {
	m.saveTieredStarts()
	for _, l := range m.Logs() {
		n, err := l.Retain(now)
		if err != nil && l.env.disk.check() == nil {
			l.env.logger.Warn("retention is put off", "topic", l.tp.Topic, "partition", l.tp.Partition, "err", err)
		}
		segments += n
	}
	return segments
}

// saveTieredStarts writes the log starts of tiered logs that have moved, once for all of a directory: each of the logs would do it
// by itself before it deletes.
func (m *Manager) saveTieredStarts() {
	for _, d := range m.dirs {
		if d.env.disk.check() == nil && d.env.disk.startChanged.Load() && slices.ContainsFunc(m.logsOf(d), (*Log).tiered) {
			m.checkpointStarts(d)
		}
	}
}

// ExpireProducers forgets in every log the producers that were silent for so many milliseconds.
func (m *Manager) ExpireProducers(now time.Time, expirationMs int64) {
	for _, l := range m.Logs() {
		l.ExpireProducers(now, expirationMs)
	}
}

// Scrub verifies about budget bytes of sealed segments and goes on from there the next time.
func (m *Manager) Scrub(budget int) {
	m.mu.RLock()
	from := m.scrub
	m.mu.RUnlock()
	for _, l := range m.Logs() {
		if comparePartitions(l.tp, from) < 0 {
			continue
		}
		checked, done, err := l.Scrub(budget)
		if err != nil && l.env.disk.check() == nil {
			l.env.logger.Warn("scrub failed", "topic", l.tp.Topic, "partition", l.tp.Partition, "err", err)
		}
		if budget -= checked; !done || budget <= 0 {
			from = l.tp
			if done {
				from.Partition++
			}
			m.setScrub(from)
			return
		}
	}
	m.setScrub(wire.TopicPartition{})
}

func (m *Manager) setScrub(tp wire.TopicPartition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.scrub = tp
}

// Sweep removes files and directories whose time has come, and closes what was not used since the last Sweep.
func (m *Manager) Sweep(now time.Time) {
	for _, p := range m.trash.take(now) {
		if err := m.o.FS.RemoveAll(p); err != nil {
			m.o.Logger.Warn("file is not removed", "path", p, "err", err) // the next start tries again
		}
	}
	m.files.sweep()
}

// TakeSealed names the logs that have sealed a segment since the last call.
func (m *Manager) TakeSealed() []wire.TopicPartition {
	var sealed []wire.TopicPartition
	for _, l := range m.sealed.take() {
		sealed = append(sealed, l.tp)
	}
	return sealed
}
