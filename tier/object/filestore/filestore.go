// Package filestore is an object store in a folder of the local file system, shared safely by several processes of one
// machine. It is the default of a cluster of one, and does not survive the loss of its disk.
//
// A put writes a temporary file, syncs it, brings it to its name by link(2) (create-only) or rename(2) (everything else),
// syncs the directory, and answers then (safety rule 6). A crash before the link leaves a temporary file, which the next
// Create removes. link(2) decides between competing creates; flock(2) makes compare and rename one step.
//
// A folder with the store's own two folders in it is a store. One without them is none, or is away (an unmounted disk leaves an
// empty folder, or nothing): that is object.ErrUnavailable for every call, since it must not look like a store without objects,
// and a put makes nothing in its place.
//
// The key a/b is the file a/b. A part of more than 200 bytes (a topic's folder may be longer than a file name) is split
// into folders that end with "~", a character that keys don't have. Folders are never removed, so that whoever has seen a
// folder durable may rely on it.
package filestore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/tidemark-io/tidemark/tier/object"
)

// Store is a folder that holds objects. Tokens are hashes of the contents.
type Store struct {
	root  string
	disk  disk
	locks locks

	mu      sync.Mutex          // guards what follows; nothing blocks under it
	durable map[string]struct{} // folders whose entries in their parents are synced
	failed  error               // of the first sync that failed
}

// The store's own folders. "~" keeps them apart from every key.
const (
	tempDir = "~tmp"
	lockDir = "~lock"
)

var ownDirs = []string{tempDir, lockDir}

// Open opens the store in the folder root, and changes nothing there.
func Open(root string) (*Store, error) {
	s, err := newStore(root, osDisk{})
	if err == nil {
		err = s.present()
	}
	if err != nil {
		return nil, fmt.Errorf("no file store is there, the first start of a broker or store-check makes one: %w", err)
	}
	return s, nil
}

// Create opens the store in the folder root, makes it if it is missing, and removes what processes that have died left in it.
func Create(root string) (*Store, error) { return create(root, osDisk{}) }

func create(root string, d disk) (*Store, error) {
	s, err := newStore(root, d)
	if err != nil {
		return nil, fmt.Errorf("create file store: %w", err)
	}
	// The parents of the root are the operator's, the root's own entry is ours.
	if err := os.MkdirAll(s.root, 0o755); err != nil {
		return nil, fmt.Errorf("create file store: %w", err)
	}
	if err := d.syncDir(filepath.Dir(s.root)); err != nil {
		return nil, fmt.Errorf("create file store: %w", err)
	}
	for _, dir := range ownDirs {
		if err := s.ensureDir(filepath.Join(s.root, dir)); err != nil {
			return nil, fmt.Errorf("create file store: %w", err)
		}
	}
	if err := removeAbandoned(filepath.Join(s.root, tempDir)); err != nil {
		return nil, fmt.Errorf("create file store: %w", err)
	}
	return s, nil
}

// newStore takes the root's entry for durable: who creates a store syncs it before the store's own folders are made.
func newStore(root string, d disk) (*Store, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	return &Store{root: root, disk: d, locks: newLocks(filepath.Join(root, lockDir)), durable: map[string]struct{}{root: {}}}, nil
}

// present is an error where the store's own folders are not.
func (s *Store) present() error {
	for _, dir := range ownDirs {
		if _, err := os.Stat(filepath.Join(s.root, dir)); err != nil {
			return err
		}
	}
	return nil
}

// partBytesMax is what a part of a key may have in one file name: below the 255 of common file systems.
const partBytesMax = 200

// path is the file that holds key. A valid key can't leave the root.
func (s *Store) path(key string) string {
	var b strings.Builder
	b.WriteString(s.root)
	for part := range strings.SplitSeq(key, "/") {
		b.WriteByte(filepath.Separator)
		for len(part) > partBytesMax {
			b.WriteString(part[:partBytesMax])
			b.WriteByte('~')
			b.WriteByte(filepath.Separator)
			part = part[partBytesMax:]
		}
		b.WriteString(part)
	}
	return b.String()
}

// key is the reverse of path, for a path relative to the root.
func keyOf(rel string) string {
	return strings.ReplaceAll(filepath.ToSlash(rel), "~/", "")
}

// admit is the check that every call begins with. After a failed sync nobody knows what is on the disk, and reading back
// from the page cache would make a lost write look safe: so reads fail too, until the process starts anew.
func (s *Store) admit(ctx context.Context, key string) error {
	if !object.ValidKey(key) {
		return object.ErrKey
	}
	return s.usable(ctx)
}

func (s *Store) usable(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", object.ErrUnavailable, err)
	}
	s.mu.Lock()
	failed := s.failed
	s.mu.Unlock()
	if failed != nil {
		return failed
	}
	return s.reachable()
}

// reachable is present at run time.
func (s *Store) reachable() error {
	if err := s.present(); err != nil {
		return fmt.Errorf("%w: %w", object.ErrUnavailable, err)
	}
	return nil
}

// Get implements object.Store.
func (s *Store) Get(ctx context.Context, key string, r object.Range) (*object.Object, error) {
	if err := s.admit(ctx, key); err != nil {
		return nil, fmt.Errorf("get %s: %w", key, err)
	}
	f, info, err := s.openObject(key)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", key, err)
	}
	n, err := r.Clip(info.Size)
	if err == nil && r.Whole() {
		info.Token, err = tokenOf(f)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("get %s: %w", key, err)
	}
	body := struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(f, r.Offset, n), f}
	return &object.Object{Info: info, Body: body}, nil
}

// Head implements object.Store. The token would cost a read of the whole file, and is left empty.
func (s *Store) Head(ctx context.Context, key string) (object.Info, error) {
	if err := s.admit(ctx, key); err != nil {
		return object.Info{}, fmt.Errorf("head %s: %w", key, err)
	}
	f, info, err := s.openObject(key)
	if err != nil {
		return object.Info{}, fmt.Errorf("head %s: %w", key, err)
	}
	f.Close()
	return info, nil
}

func (s *Store) openObject(key string) (*os.File, object.Info, error) {
	f, err := os.Open(s.path(key))
	if err != nil {
		return nil, object.Info{}, s.notExist(err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = object.ErrNotExist // a folder of longer keys
	}
	if err != nil {
		f.Close()
		return nil, object.Info{}, err
	}
	return f, object.Info{Key: key, Size: info.Size(), ModTime: info.ModTime()}, nil
}

// notExist turns what the file system says of a missing file into object.ErrNotExist, unless the store has gone since it was found usable.
func (s *Store) notExist(err error) error {
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errNotDir) {
		return err
	}
	if err := s.reachable(); err != nil {
		return err
	}
	return object.ErrNotExist
}

// tokenOf hashes a file. Files are replaced and never changed, so the hash stays true while the file is open.
func tokenOf(f *os.File) (object.Token, error) {
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(f, 0, 1<<62)); err != nil {
		return "", err
	}
	return token(h), nil
}

func token(h hash.Hash) object.Token { return object.Token(hex.EncodeToString(h.Sum(nil))) }

// Put implements object.Store. Once the file is linked or renamed, ctx is not looked at any more.
func (s *Store) Put(ctx context.Context, key string, body object.Body, cond object.Condition) (object.Token, error) {
	if err := s.admit(ctx, key); err != nil {
		return "", fmt.Errorf("put %s: %w", key, err)
	}
	t, err := s.put(ctx, s.path(key), body, cond)
	if err != nil {
		return "", fmt.Errorf("put %s: %w", key, err)
	}
	return t, nil
}

func (s *Store) put(ctx context.Context, path string, body object.Body, cond object.Condition) (object.Token, error) {
	dir := filepath.Dir(path)
	if err := s.ensureDir(dir); err != nil {
		return "", err
	}
	temp, err := s.disk.createTemp(filepath.Join(s.root, tempDir))
	if err != nil {
		return "", err
	}
	defer temp.Close()
	linked := false
	defer func() {
		if !linked {
			_ = s.disk.remove(temp.Name())
		}
	}()
	h := sha256.New()
	if _, err := io.Copy(io.MultiWriter(temp, h), io.NewSectionReader(body, 0, body.Size())); err != nil {
		return "", err
	}
	if err := s.disk.sync(temp); err != nil {
		return "", s.fail(err)
	}

	if cond.Kind == object.Absent {
		err = s.disk.link(temp.Name(), path)
	} else {
		err = s.replace(ctx, temp.Name(), path, cond)
		linked = err == nil
	}
	switch {
	case errors.Is(err, fs.ErrExist) && isDir(path):
		return "", errors.New("the key is a folder of other keys")
	case errors.Is(err, fs.ErrExist):
		return "", object.ErrPrecondition
	case err != nil:
		return "", err
	}
	if err := s.disk.syncDir(dir); err != nil {
		return "", s.fail(err)
	}
	return token(h), nil
}

// replace brings temp to path by rename, if cond holds.
func (s *Store) replace(ctx context.Context, temp, path string, cond object.Condition) error {
	unlock, err := s.locks.lock(ctx, path)
	if err != nil {
		return err
	}
	defer unlock()
	if cond.Kind == object.Match {
		f, err := os.Open(path)
		if err != nil {
			return s.notExist(err)
		}
		defer f.Close()
		current, err := tokenOf(f)
		if err != nil {
			return err
		}
		if current != cond.Token {
			return object.ErrPrecondition
		}
	}
	return s.disk.rename(temp, path)
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// ensureDir makes a folder of the store with its parents, and their entries durable: a folder that is there already may
// have been made by another process that has not synced it yet.
func (s *Store) ensureDir(dir string) error {
	s.mu.Lock()
	_, ok := s.durable[dir]
	s.mu.Unlock()
	if ok {
		return nil
	}
	parent := filepath.Dir(dir)
	if err := s.ensureDir(parent); err != nil {
		return err
	}
	if err := s.disk.mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := s.disk.syncDir(parent); err != nil {
		return s.fail(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.durable) >= durableDirsMax {
		clear(s.durable)
		s.durable[s.root] = struct{}{}
	}
	s.durable[dir] = struct{}{}
	return nil
}

// durableDirsMax bounds what is remembered; forgetting costs a sync.
const durableDirsMax = 100_000

// fail makes a failed sync final.
func (s *Store) fail(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil {
		s.failed = fmt.Errorf("%w until restart: sync: %w", object.ErrUnavailable, err)
	}
	return s.failed
}

// Delete implements object.Store.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := s.admit(ctx, key); err != nil {
		return fmt.Errorf("delete %s: %w", key, err)
	}
	if err := s.remove(ctx, s.path(key)); err != nil {
		return fmt.Errorf("delete %s: %w", key, err)
	}
	return nil
}

func (s *Store) remove(ctx context.Context, path string) error {
	unlock, err := s.locks.lock(ctx, path)
	if err != nil {
		return err
	}
	defer unlock()
	if isDir(path) {
		return nil // no object of that key; remove would take an empty folder
	}
	if err := s.notExist(s.disk.remove(path)); errors.Is(err, object.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	if err := s.disk.syncDir(filepath.Dir(path)); err != nil {
		return s.fail(err)
	}
	return nil
}

// List implements object.Store. The whole list is read and sorted before the first key is yielded.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[object.Info, error] {
	return func(yield func(object.Info, error) bool) {
		infos, err := s.list(ctx, prefix, after)
		if err != nil {
			yield(object.Info{}, fmt.Errorf("list %s: %w", prefix, err))
			return
		}
		for _, info := range infos {
			if !yield(info, nil) {
				return
			}
		}
	}
}

func (s *Store) list(ctx context.Context, prefix, after string) ([]object.Info, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	base := s.root
	if i := strings.LastIndexByte(prefix, '/'); i > 0 && object.ValidKey(prefix[:i]) {
		base = s.path(prefix[:i])
	}
	var infos []object.Info
	err := filepath.WalkDir(base, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // deleted since its folder was read
		} else if err != nil {
			return err
		} else if path == s.root {
			return ctx.Err()
		}
		key := keyOf(path[len(s.root)+1:])
		if d.IsDir() {
			inside := strings.TrimSuffix(key, "~") // all keys in here begin so
			foreign := !object.ValidKey(inside)    // the store's own folders, lost+found
			if foreign || !strings.HasPrefix(inside, prefix) && !strings.HasPrefix(prefix, inside) {
				return fs.SkipDir
			}
			return ctx.Err()
		}
		if !object.ValidKey(key) || !strings.HasPrefix(key, prefix) || key <= after {
			return nil
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		} else if err != nil {
			return err
		}
		infos = append(infos, object.Info{Key: key, Size: info.Size(), ModTime: info.ModTime()})
		return nil
	})
	if cause := ctx.Err(); err != nil && cause != nil {
		return nil, fmt.Errorf("%w: %w", object.ErrUnavailable, cause)
	} else if err != nil {
		return nil, err
	}
	if err := s.reachable(); err != nil { // folders that go missing under way look like deleted ones
		return nil, err
	}
	slices.SortFunc(infos, func(a, b object.Info) int { return strings.Compare(a.Key, b.Key) })
	return infos, nil
}
