package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"time"

	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/tier/chain"
)

// keptFile holds, in the first log directory that is online, what this broker has seen of the metadata: a chain that ends before it,
// or that differs there, is not the one this broker belongs to (safety.md 8). The image says which topics there were, so that the
// logs of those that are gone can be told from logs that nobody can explain.
const keptFile = "cluster-metadata.json"

// keptState is the content of keptFile; the zero position and an empty image without one.
type keptState struct {
	position    chain.Position
	incarnation string // of the process that wrote it
	image       *metadata.Image
}

// keptVersion is the version of the file that this code reads and writes.
const keptVersion = 1

type keptJSON struct {
	Version     int             `json:"version"`
	Position    chain.Position  `json:"position"`
	Incarnation string          `json:"incarnation"`
	Image       json.RawMessage `json:"image"`
}

// loadKept gives what was seen last, whichever of the directories was the first one then.
func loadKept(fsys vfs.FS, dirs []string) (keptState, error) {
	newest := keptState{image: metadata.Empty()}
	for _, dir := range dirs {
		kept, err := loadKeptFrom(fsys, path.Join(dir, keptFile))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return keptState{}, err
		}
		if kept.position.Number >= newest.position.Number {
			newest = kept
		}
	}
	return newest, nil
}

func loadKeptFrom(fsys vfs.FS, name string) (keptState, error) {
	var none keptState
	file, err := fsys.OpenRead(name)
	if err != nil {
		return none, fmt.Errorf("open %s: %w", keptFile, err)
	}
	defer file.Close()
	size, err := file.Size()
	if err != nil {
		return none, fmt.Errorf("read %s: %w", keptFile, err)
	}
	data := make([]byte, size)
	if _, err := file.ReadAt(data, 0); err != nil && !errors.Is(err, io.EOF) {
		return none, fmt.Errorf("read %s: %w", keptFile, err)
	}
	var content keptJSON
	if err := json.Unmarshal(data, &content); err != nil {
		return none, fmt.Errorf("decode %s: %w", keptFile, err)
	}
	if content.Version != keptVersion {
		return none, fmt.Errorf("decode %s: version %d, this program knows %d", keptFile, content.Version, keptVersion)
	}
	image, err := metadata.DecodeSnapshot(content.Image)
	if err != nil {
		return none, fmt.Errorf("decode %s: %w", keptFile, err)
	}
	return keptState{content.Position, content.Incarnation, image}, nil
}

// storeKept writes the file into the first log directory that is online.
func (e *Engine) storeKept(state keptState) error {
	for _, d := range e.logs.Dirs() {
		if d.Err == nil {
			return storeKept(e.fs, d.Path, state)
		}
	}
	return log.ErrStorage
}

func storeKept(fsys vfs.FS, dir string, state keptState) error {
	data, err := json.Marshal(keptJSON{keptVersion, state.position, state.incarnation, state.image.Snapshot()})
	if err != nil {
		return err
	}
	return replaceFile(fsys, path.Join(dir, keptFile), data)
}

// replaceFile replaces a file, durably: a crash leaves the old or the new one.
func replaceFile(fsys vfs.FS, name string, data []byte) error {
	temporary := name + ".tmp"
	file, err := fsys.Create(temporary)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(data, 0)
	if err == nil {
		err = file.Sync()
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	if err := fsys.Rename(temporary, name); err != nil {
		return err
	}
	return fsys.SyncDir(path.Dir(name))
}

// keepInterval is the least time between two writes of keptFile: what lies between is only less precise.
const keepInterval = time.Second

// keepMetadata writes keptFile soon, unless that is under way.
func (e *Engine) keepMetadata(now time.Time) {
	if e.keeping || e.image.Load().Offset() == e.keptOffset || now.Before(e.keepDue) {
		return
	}
	e.keeping = true
	e.keepDue = now.Add(keepInterval)
	state := keptState{e.role.log.tail, e.incarnation, e.Image()}
	e.lanes.add(LaneDisk, func(context.Context) Completion {
		err := e.storeKept(state)
		return func(time.Time) {
			e.keeping = false
			if err != nil {
				e.logger.Warn("metadata can't be kept on disk", "err", err)
				return
			}
			e.keptOffset = state.image.Offset()
		}
	})
}
