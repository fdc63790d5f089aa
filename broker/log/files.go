package log

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// Suffixes of the files of a partition.
const (
	logSuffix       = ".log"
	offsetSuffix    = ".index"
	timeSuffix      = ".timeindex"
	txnSuffix       = ".txnindex"
	snapshotSuffix  = ".snapshot"
	deletedSuffix   = ".deleted"
	temporarySuffix = ".tmp"
)

// Files of a partition beside its segments.
const (
	epochFile     = "leader-epoch-checkpoint"
	partitionFile = "partition.metadata"
	damageFile    = "damaged-ranges" // Tidemark's own; Kafka ignores it
	// unverifiedFile is Tidemark's own, too, and empty: MayLackEnd holds also after the next stop, whatever that is.
	unverifiedFile = "end-unverified"
	// remoteFile likewise: the log begins below its first segment, in the object store.
	remoteFile = "start-remote"
)

const baseDigits = 20

// fileName is the name of a segment's file.
func fileName(base wire.Offset, suffix string) string {
	return fmt.Sprintf("%0*d%s", baseDigits, int64(base), suffix)
}

// splitFileName reads what fileName wrote; ok is false for any other name.
func splitFileName(name string) (base wire.Offset, suffix string, ok bool) {
	if len(name) <= baseDigits || name[baseDigits] != '.' {
		return 0, "", false
	}
	n, err := strconv.ParseInt(name[:baseDigits], 10, 64)
	if err != nil || n < 0 {
		return 0, "", false
	}
	return wire.Offset(n), name[baseDigits:], true
}

// readFile reads a whole small file.
func readFile(fsys vfs.FS, name string) ([]byte, error) {
	f, err := fsys.OpenRead(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() // nothing was written
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	b := make([]byte, size)
	if n, err := f.ReadAt(b, 0); err != nil && !(errors.Is(err, io.EOF) && int64(n) == size) {
		return nil, err
	}
	return b, nil
}

// writeFile puts data in place of a file so that a crash leaves the old or the new content.
func writeFile(fsys vfs.FS, name string, data []byte) error {
	temporary := name + temporarySuffix
	f, err := fsys.Create(temporary)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := fsys.Rename(temporary, name); err != nil {
		return err
	}
	return fsys.SyncDir(path.Dir(name))
}

// syncDir makes the names of the log's files durable, and with them where its first segment begins. The caller keeps those away who change
// that.
func (l *Log) syncDir() error {
	first := (*l.segments.Load())[0].base
	if err := l.env.fs.SyncDir(l.dir); err != nil {
		return err
	}
	l.firstSynced.Store(int64(first))
	return nil
}

// syncParents makes the name of a directory durable, and the names of the directories above it: any of them may be new. It ends at
// one that may not be read, which was there before.
func syncParents(fsys vfs.FS, dir string) error {
	for parent := path.Dir(dir); ; parent = path.Dir(parent) {
		err := fsys.SyncDir(parent)
		if errors.Is(err, fs.ErrPermission) || err == nil && parent == path.Dir(parent) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// syncFile makes an existing file durable; a missing one is none of its business.
func syncFile(fsys vfs.FS, name string) error {
	f, err := fsys.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(syncData(f), f.Close())
}

// syncData makes what was written to a file durable. That it failed for want of room does not make it harmless: the pages are
// lost, and the next sync would vouch for them. Only a file that is written anew as a whole may be tried again.
func syncData(f vfs.File) error {
	if err := f.Sync(); err != nil {
		return notFull{err}
	}
	return nil
}

// removeFile removes a file that may be missing.
func removeFile(fsys vfs.FS, name string) error {
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// deleteSuffix and straySuffix end the names of partition directories that were taken away.
const (
	deleteSuffix     = "-delete"
	straySuffix      = "-stray"
	maxDirNameLength = 255
)

// parkedDirName is the name of a directory taken away: topic-partition.<32 hex digits>-delete, with the topic cut so that a
// file system takes the name.
func parkedDirName(tp wire.TopicPartition, id [16]byte, suffix string) string {
	end := fmt.Sprintf("-%d.%x%s", tp.Partition, id, suffix)
	return tp.Topic[:min(len(tp.Topic), maxDirNameLength-len(end))] + end
}

// parseDirName reads topic-partition; ok is false for any other name.
func parseDirName(name string) (tp wire.TopicPartition, ok bool) {
	dash := strings.LastIndexByte(name, '-')
	if dash < 0 {
		return tp, false
	}
	partition, err := strconv.ParseInt(name[dash+1:], 10, 32)
	tp = wire.TopicPartition{Topic: name[:dash], Partition: int32(partition)}
	return tp, err == nil && tp.String() == name && wire.ValidTopicName(tp.Topic)
}
