package log

import (
	"errors"
	"io/fs"
	"path"
)

// noteRemote puts on disk that the log begins below its first segment, in the object store, before that is so. Neither a config in
// which the topic is not tiered for a while nor a lost checkpoint may make what is left here the whole of the log: the next leader would
// tell the manifest so. It is called under l.maintenance.
func (l *Log) noteRemote() error {
	if l.remote {
		return nil
	}
	f, err := l.env.fs.Create(path.Join(l.dir, remoteFile))
	if err == nil {
		err = errors.Join(f.Close(), l.env.fs.SyncDir(l.dir))
	}
	l.remote = err == nil
	return err
}

// forgetRemote takes that back: the log begins here.
func (l *Log) forgetRemote() error {
	if !l.remote {
		return nil
	}
	if err := l.env.fs.Remove(path.Join(l.dir, remoteFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l.remote = false
	return nil
}
