package log

import (
	"errors"
	"io/fs"
	"path"
	"slices"
)

// loadUnverified finds out whether the end of a log that is opened may be missing, and keeps that on disk for a tiered one: a
// process that dies before the manifest was read must not make the next one forget it.
func (l *Log) loadUnverified(names []string) error {
	switch {
	case slices.Contains(names, unverifiedFile):
		l.mayLack.Store(true)
	case l.MayLackEnd() && l.tiered():
		return l.noteUnverified()
	}
	return nil
}

// noteUnverified puts on disk that the log's end may be missing.
func (l *Log) noteUnverified() error {
	l.mayLack.Store(true)
	name := path.Join(l.dir, unverifiedFile)
	if _, err := l.env.fs.Stat(name); err == nil {
		return nil
	}
	f, err := l.env.fs.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), l.env.fs.SyncDir(l.dir))
}

// Verified says that the log's end is what the manifest says, or behind it: nothing is missing.
func (l *Log) Verified() error {
	l.maintenance.Lock()
	defer l.maintenance.Unlock()
	if !l.MayLackEnd() {
		return nil
	}
	err := l.env.fs.Remove(path.Join(l.dir, unverifiedFile))
	if err == nil {
		err = l.env.fs.SyncDir(l.dir)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return l.env.fault("note that the log is whole", err)
	}
	l.mayLack.Store(false)
	return nil
}
