package filestore

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/objecttest"
)

func TestStoreConforms(t *testing.T) {
	s, err := Create(filepath.Join(t.TempDir(), "store"))
	if err != nil {
		t.Fatal(err)
	}
	objecttest.Run(t, s)
}

// recorder notes every step towards the disk, and can fail one.
type recorder struct {
	osDisk
	root  string
	steps []string
	fail  string // the step that fails
}

var errDisk = errors.New("input/output error")

func (r *recorder) note(op, name string) error {
	rel, err := filepath.Rel(r.root, name)
	if err != nil {
		return err
	}
	if filepath.Dir(rel) == tempDir {
		rel = "TEMP"
	}
	step := op + " " + rel
	r.steps = append(r.steps, step)
	if step == r.fail {
		return errDisk
	}
	return nil
}

func (r *recorder) createTemp(dir string) (*os.File, error) {
	if err := r.note("create", filepath.Join(dir, "x")); err != nil {
		return nil, err
	}
	return r.osDisk.createTemp(dir)
}

func (r *recorder) sync(f *os.File) error {
	if err := r.note("sync", f.Name()); err != nil {
		return err
	}
	return r.osDisk.sync(f)
}

func (r *recorder) link(from, to string) error {
	if err := r.note("link", to); err != nil {
		return err
	}
	return r.osDisk.link(from, to)
}

func (r *recorder) rename(from, to string) error {
	if err := r.note("rename", to); err != nil {
		return err
	}
	return r.osDisk.rename(from, to)
}

func (r *recorder) remove(name string) error {
	if err := r.note("remove", name); err != nil {
		return err
	}
	return r.osDisk.remove(name)
}

func (r *recorder) mkdir(name string) error {
	if err := r.note("mkdir", name); err != nil {
		return err
	}
	return r.osDisk.mkdir(name)
}

func (r *recorder) syncDir(name string) error {
	if err := r.note("syncdir", name); err != nil {
		return err
	}
	return r.osDisk.syncDir(name)
}

func recorded(t *testing.T) (*Store, *recorder) {
	t.Helper()
	r := &recorder{root: filepath.Join(t.TempDir(), "store")}
	s, err := create(r.root, r)
	if err != nil {
		t.Fatal(err)
	}
	return s, r
}

func put(s *Store, key, body string, cond object.Condition) (object.Token, error) {
	return s.Put(context.Background(), key, strings.NewReader(body), cond)
}

// TestSafety06DurableBeforeTheAnswer is the order of steps that safety rule 6 asks for.
func TestSafety06DurableBeforeTheAnswer(t *testing.T) {
	s, r := recorded(t)
	expect := func(what string, want ...string) {
		t.Helper()
		if !slices.Equal(r.steps, want) {
			t.Errorf("%s:\n  got  %q\n  want %q", what, r.steps, want)
		}
		r.steps = nil
	}
	expect("create", "syncdir ..", "mkdir ~tmp", "syncdir .", "mkdir ~lock", "syncdir .")

	token, err := put(s, "a/b/k", "1", object.IfAbsent())
	if err != nil {
		t.Fatal(err)
	}
	expect("first create in new folders", "mkdir a", "syncdir .", "mkdir a/b", "syncdir a",
		"create TEMP", "sync TEMP", "link a/b/k", "syncdir a/b", "remove TEMP")

	_, _ = put(s, "a/b/k", "2", object.IfAbsent())
	expect("create of what is there", "create TEMP", "sync TEMP", "link a/b/k", "remove TEMP")

	_, _ = put(s, "a/b/k", "2", object.IfMatch(token))
	expect("swap", "create TEMP", "sync TEMP", "rename a/b/k", "syncdir a/b")

	_, _ = put(s, "a/b/k", "3", object.IfMatch(token))
	expect("swap with an old token", "create TEMP", "sync TEMP", "remove TEMP")

	_, _ = put(s, "a/b/k", "3", object.Condition{})
	expect("overwrite", "create TEMP", "sync TEMP", "rename a/b/k", "syncdir a/b")

	_ = s.Delete(t.Context(), "a/b/k")
	expect("delete", "remove a/b/k", "syncdir a/b")

	// Another process may have made the folders and not synced them yet.
	again, err := create(r.root, r)
	if err != nil {
		t.Fatal(err)
	}
	r.steps = nil
	_, _ = put(again, "a/b/k", "1", object.IfAbsent())
	expect("first create after a restart", "mkdir a", "syncdir .", "mkdir a/b", "syncdir a",
		"create TEMP", "sync TEMP", "link a/b/k", "syncdir a/b", "remove TEMP")
}

// TestAFailedSyncIsFinal: after it the page cache may show what the disk has lost, so that reading back must not say that
// the put was carried out.
func TestAFailedSyncIsFinal(t *testing.T) {
	for _, step := range []string{"sync TEMP", "syncdir a", "syncdir ."} {
		s, r := recorded(t)
		r.fail = step
		got, err := object.Settle(t.Context(), s, "a/k", []byte("1"), object.IfAbsent(), 10)
		if got.Outcome != object.Unknown || !errors.Is(err, errDisk) {
			t.Errorf("%s fails: %v, %v", step, got.Outcome, err)
		}
		r.fail = ""
		if _, err := put(s, "a/other", "1", object.IfAbsent()); !errors.Is(err, object.ErrUnavailable) {
			t.Errorf("%s has failed, the next put: %v", step, err)
		}
	}
}

func TestAFullDiskLeavesNothingBehind(t *testing.T) {
	s, r := recorded(t)
	for _, step := range []string{"create TEMP", "link a/k"} {
		r.fail = step
		if _, err := put(s, "a/k", "1", object.IfAbsent()); !errors.Is(err, errDisk) {
			t.Errorf("%s fails: %v", step, err)
		}
	}
	r.fail = ""
	if _, err := put(s, "a/k", "1", object.IfAbsent()); err != nil {
		t.Errorf("once there is room again: %v", err)
	}
	if left, _ := os.ReadDir(filepath.Join(r.root, tempDir)); len(left) != 0 {
		t.Errorf("temporary files: %v", left)
	}
}

func TestCreateRemovesTheTemporaryFilesOfTheDead(t *testing.T) {
	root := t.TempDir()
	s, err := Create(root)
	if err != nil {
		t.Fatal(err)
	}
	abandoned := filepath.Join(root, tempDir, "put-1")
	if err := os.WriteFile(abandoned, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	inUse, err := s.disk.createTemp(filepath.Join(root, tempDir))
	if err != nil {
		t.Fatal(err)
	}
	defer inUse.Close()
	if _, err := Create(root); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(abandoned); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the abandoned file: %v", err)
	}
	if _, err := os.Stat(inUse.Name()); err != nil {
		t.Errorf("the file in use: %v", err)
	}
}

// TestAStoppedProcessDoesNotStopDeadlines: another process is stopped between compare and rename.
func TestAStoppedProcessDoesNotStopDeadlines(t *testing.T) {
	root := t.TempDir()
	s, err := Create(root)
	if err != nil {
		t.Fatal(err)
	}
	for shard := range lockShards {
		f, err := s.locks.lockFile(t.Context(), filepath.Join(root, lockDir, strconv.Itoa(shard)))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := s.Put(ctx, "k", bytes.NewReader(nil), object.Condition{}); !errors.Is(err, object.ErrUnavailable) {
		t.Errorf("overwrite while the lock is held elsewhere: %v", err)
	}
	if _, err := put(s, "k", "1", object.IfAbsent()); err != nil {
		t.Errorf("create needs no lock: %v", err)
	}
}

// TestTwoProcessesShareOneFolder: flock belongs to the open file, so two stores stand for two processes.
func TestTwoProcessesShareOneFolder(t *testing.T) {
	root := t.TempDir()
	stores := make([]*Store, 2)
	for i := range stores {
		s, err := Create(root)
		if err != nil {
			t.Fatal(err)
		}
		stores[i] = s
	}
	token, err := put(stores[0], "k", "start", object.IfAbsent())
	if err != nil {
		t.Fatal(err)
	}
	for round := range 20 {
		tokens, errs := make([]object.Token, 8), make([]error, 8)
		objecttest.Parallel(8, func(i int) {
			body := "round " + strconv.Itoa(round) + " racer " + strconv.Itoa(i)
			tokens[i], errs[i] = put(stores[i%2], "k", body, object.IfMatch(token))
		})
		won := 0
		for i, err := range errs {
			if err == nil {
				won++
				token = tokens[i]
			} else if !errors.Is(err, object.ErrPrecondition) {
				t.Fatal(err)
			}
		}
		if won != 1 {
			t.Fatalf("round %d has %d winners", round, won)
		}
	}
}

func TestAKeyThatIsAFolderOfAnotherIsAnError(t *testing.T) {
	s, _ := recorded(t)
	if _, err := put(s, "a/k", "1", object.IfAbsent()); err != nil {
		t.Fatal(err)
	}
	for _, cond := range []object.Condition{object.IfAbsent(), {}, object.IfMatch("t")} {
		if _, err := put(s, "a", "1", cond); err == nil || errors.Is(err, object.ErrPrecondition) {
			t.Errorf("put of a folder under condition %d: %v", cond.Kind, err)
		}
		if _, err := put(s, "a/k/below", "1", cond); err == nil || errors.Is(err, object.ErrPrecondition) {
			t.Errorf("put below an object under condition %d: %v", cond.Kind, err)
		}
	}
	if err := s.Delete(t.Context(), "a"); err != nil {
		t.Errorf("delete of a folder, which is no object: %v", err)
	}
	for _, key := range []string{"a", "a/k/below"} {
		if _, err := s.Get(t.Context(), key, object.Range{}); !errors.Is(err, object.ErrNotExist) {
			t.Errorf("get %s: %v", key, err)
		}
	}
}

func TestListIgnoresWhatIsNotOurs(t *testing.T) {
	s, r := recorded(t)
	if _, err := put(s, "a/k", "1", object.IfAbsent()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"lost+found", "a/not ours"} {
		if err := os.Mkdir(filepath.Join(r.root, name), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(r.root, "a", "odd~name"), 0o600); err != nil {
		t.Fatal(err)
	}
	var keys []string
	for info, err := range s.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, info.Key)
	}
	if !slices.Equal(keys, []string{"a/k"}) {
		t.Errorf("list is %q", keys)
	}
}

func TestOpenChangesNothing(t *testing.T) {
	root := filepath.Join(t.TempDir(), "store")
	for _, make := range []func() error{
		func() error { return nil },
		func() error { return os.Mkdir(root, 0o755) },
		func() error { return os.Mkdir(filepath.Join(root, tempDir), 0o755) },
	} {
		if err := make(); err != nil {
			t.Fatal(err)
		}
		before := tree(t, root)
		if _, err := Open(root); err == nil {
			t.Errorf("%q is a store", before)
		}
		if after := tree(t, root); !slices.Equal(before, after) {
			t.Errorf("%q has become %q", before, after)
		}
	}

	s, err := Create(root)
	if err == nil {
		_, err = put(s, "a/k", "1", object.IfAbsent())
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(root, tempDir, "put-1"), nil, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	before := tree(t, root)
	s, err = Open(root)
	if err != nil {
		t.Fatal(err)
	}
	if after := tree(t, root); !slices.Equal(before, after) {
		t.Errorf("%q has become %q", before, after)
	}
	if got, _, err := object.Read(t.Context(), s, "a/k", 10); string(got) != "1" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// tree is all that there is at root.
func tree(t *testing.T, root string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Dir(root), func(name string, _ fs.DirEntry, err error) error {
		names = append(names, name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestAStoreThatIsAwayIsUnavailable: it must not be taken for an emptied one, nor be begun anew by a put.
func TestAStoreThatIsAwayIsUnavailable(t *testing.T) {
	for name, takeAway := range map[string]func(root string) error{
		"no folder":        func(string) error { return nil },
		"an empty folder":  func(root string) error { return os.Mkdir(root, 0o755) },
		"a file":           func(root string) error { return os.WriteFile(root, nil, 0o600) },
		"a folder of keys": func(root string) error { return os.MkdirAll(filepath.Join(root, "a"), 0o755) },
		"no locks":         func(root string) error { return os.MkdirAll(filepath.Join(root, tempDir), 0o755) },
		"no temporaries":   func(root string) error { return os.MkdirAll(filepath.Join(root, lockDir), 0o755) },
	} {
		t.Run(name, func(t *testing.T) {
			s, r := recorded(t)
			token, err := put(s, "a/k", "1", object.IfAbsent())
			if err != nil {
				t.Fatal(err)
			}
			away := r.root + ".away"
			if err := errors.Join(os.Rename(r.root, away), takeAway(r.root)); err != nil {
				t.Fatal(err)
			}
			before := tree(t, r.root)
			for op, call := range map[string]func() error{
				"get":    func() error { _, err := s.Get(t.Context(), "a/k", object.Range{}); return err },
				"head":   func() error { _, err := s.Head(t.Context(), "a/k"); return err },
				"create": func() error { _, err := put(s, "a/new", "1", object.IfAbsent()); return err },
				"swap":   func() error { _, err := put(s, "a/k", "2", object.IfMatch(token)); return err },
				"put":    func() error { _, err := put(s, "b/k", "2", object.Condition{}); return err },
				"delete": func() error { return s.Delete(t.Context(), "a/k") },
				"list": func() error {
					for _, err := range s.List(t.Context(), "a/", "") {
						return err
					}
					return nil
				},
			} {
				if err := call(); !errors.Is(err, object.ErrUnavailable) || errors.Is(err, object.ErrNotExist) {
					t.Errorf("%s: %v", op, err)
				}
			}
			if after := tree(t, r.root); !slices.Equal(before, after) {
				t.Errorf("%q has become %q", before, after)
			}

			if err := errors.Join(os.RemoveAll(r.root), os.Rename(away, r.root)); err != nil {
				t.Fatal(err)
			}
			if _, err := put(s, "a/k", "2", object.IfMatch(token)); err != nil {
				t.Errorf("once it is back: %v", err)
			}
		})
	}
}
