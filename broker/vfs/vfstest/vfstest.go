// Package vfstest holds the acceptance test that every implementation of vfs.FS passes.
package vfstest

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"sync"
	"testing"

	"github.com/tidemark-io/tidemark/broker/vfs"
)

// Run checks an implementation. factory gives a file system and an empty directory in it for each subtest.
func Run(t *testing.T, factory func(t *testing.T) (vfs.FS, string)) {
	tests := []struct {
		name string
		run  func(t *testing.T, f fixture)
	}{
		{"a created file is empty, reads back what was written, and has its size", readBack},
		{"a write past the end leaves zeros between", hole},
		{"Create empties an existing file", createEmpties},
		{"Open and OpenRead want an existing file, OpenRead does not write", openModes},
		{"Truncate cuts, and grows with zeros", truncate},
		{"Reserve leaves size and content alone", reserve},
		{"a short read ends in io.EOF", shortRead},
		{"Rename replaces the target and keeps open files", rename},
		{"Rename moves a directory with its content", renameDir},
		{"Remove takes files and empty directories only", remove},
		{"RemoveAll takes a tree, and a missing one is no error", removeAll},
		{"a removed file stays readable where it is open", removedOpen},
		{"MkdirAll makes parents and is idempotent", mkdirAll},
		{"List is sorted and names files and directories", list},
		{"missing names are fs.ErrNotExist everywhere", missing},
		{"a mapping shows later appends", mapping},
		{"a mapping of nothing is empty", mappingEmpty},
		{"a lock has one holder until it is closed", lock},
		{"Usage is within the disk", usage},
		{"Sync and SyncDir succeed on what exists", syncs},
		{"a closed file is fs.ErrClosed", closed},
		{"readers run beside one appender", parallel},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			fsys, dir := factory(t)
			tt.run(t, fixture{t: t, fs: fsys, dir: dir})
		})
	}
}

// fixture is a file system under test with checks that end the test.
type fixture struct {
	t   *testing.T
	fs  vfs.FS
	dir string
}

func (f fixture) path(name string) string { return path.Join(f.dir, name) }

func (f fixture) ok(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f fixture) is(err, want error) {
	f.t.Helper()
	if !errors.Is(err, want) {
		f.t.Fatalf("error is %v, want %v", err, want)
	}
}

func (f fixture) write(name, text string) vfs.File {
	f.t.Helper()
	file, err := f.fs.Create(f.path(name))
	f.ok(err)
	f.t.Cleanup(func() { _ = file.Close() })
	_, err = file.WriteAt([]byte(text), 0)
	f.ok(err)
	return file
}

func (f fixture) wants(file vfs.File, text string) {
	f.t.Helper()
	size, err := file.Size()
	f.ok(err)
	b := make([]byte, size)
	if n, err := file.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) || int64(n) != size {
		f.t.Fatalf("read %d of %d bytes: %v", n, size, err)
	}
	if string(b) != text {
		f.t.Fatalf("file holds %q, want %q", b, text)
	}
}

func (f fixture) holds(name, text string) {
	f.t.Helper()
	file, err := f.fs.OpenRead(f.path(name))
	f.ok(err)
	f.wants(file, text)
	f.ok(file.Close())
}

func readBack(t *testing.T, f fixture) {
	file := f.write("a", "")
	f.wants(file, "")
	n, err := file.WriteAt([]byte("hello"), 0)
	f.ok(err)
	if n != 5 {
		t.Fatalf("wrote %d bytes, want 5", n)
	}
	_, err = file.WriteAt([]byte("p me"), 3)
	f.ok(err)
	f.wants(file, "help me")
	info, err := f.fs.Stat(f.path("a"))
	f.ok(err)
	if info.Size != 7 || info.IsDir {
		t.Fatalf("Stat says %+v", info)
	}
}

func hole(_ *testing.T, f fixture) {
	file := f.write("a", "x")
	_, err := file.WriteAt([]byte("y"), 3)
	f.ok(err)
	f.wants(file, "x\x00\x00y")
}

func createEmpties(_ *testing.T, f fixture) {
	f.write("a", "old")
	f.write("a", "")
	f.holds("a", "")
}

func openModes(_ *testing.T, f fixture) {
	f.write("a", "text")
	file, err := f.fs.Open(f.path("a"))
	f.ok(err)
	_, err = file.WriteAt([]byte("T"), 0)
	f.ok(err)
	f.ok(file.Close())
	file, err = f.fs.OpenRead(f.path("a"))
	f.ok(err)
	f.wants(file, "Text")
	if _, err = file.WriteAt([]byte("x"), 0); err == nil {
		f.t.Fatal("a file opened for reading took a write")
	}
	f.ok(file.Close())
	if _, err = f.fs.Open(f.dir); err == nil {
		f.t.Fatal("a directory opened as a writable file")
	}
}

func truncate(_ *testing.T, f fixture) {
	file := f.write("a", "abcdef")
	f.ok(file.Truncate(2))
	f.wants(file, "ab")
	f.ok(file.Truncate(4))
	f.wants(file, "ab\x00\x00")
}

func reserve(_ *testing.T, f fixture) {
	file := f.write("a", "abc")
	file.Reserve(3, 1<<20)
	f.wants(file, "abc")
	_, err := file.WriteAt([]byte("def"), 3)
	f.ok(err)
	f.wants(file, "abcdef")
	f.ok(file.Truncate(6))
	f.wants(file, "abcdef")
}

func shortRead(t *testing.T, f fixture) {
	file := f.write("a", "abc")
	b := make([]byte, 5)
	for _, tt := range []struct {
		off  int64
		n    int
		want error
	}{{0, 3, io.EOF}, {2, 1, io.EOF}, {3, 0, io.EOF}, {9, 0, io.EOF}} {
		if n, err := file.ReadAt(b, tt.off); n != tt.n || !errors.Is(err, tt.want) {
			t.Fatalf("ReadAt(5 bytes, %d) = %d, %v; want %d, %v", tt.off, n, err, tt.n, tt.want)
		}
	}
	if n, err := file.ReadAt(b[:2], 1); n != 2 || err != nil {
		t.Fatalf("ReadAt up to the end = %d, %v", n, err)
	}
}

func rename(_ *testing.T, f fixture) {
	old, file := f.write("b", "old"), f.write("a", "new")
	f.ok(f.fs.Rename(f.path("a"), f.path("b")))
	f.holds("b", "new")
	_, err := f.fs.Stat(f.path("a"))
	f.is(err, fs.ErrNotExist)
	f.wants(old, "old")
	_, err = file.WriteAt([]byte("N"), 0)
	f.ok(err)
	f.holds("b", "New")
	f.ok(f.fs.Rename(f.path("b"), f.path("b")))
	f.holds("b", "New")
}

func renameDir(t *testing.T, f fixture) {
	f.ok(f.fs.MkdirAll(f.path("t-0/sub")))
	f.write("t-0/a", "x")
	f.ok(f.fs.MkdirAll(f.path("other")))
	f.ok(f.fs.Rename(f.path("t-0"), f.path("other/t-0-delete")))
	f.holds("other/t-0-delete/a", "x")
	names, err := f.fs.List(f.dir)
	f.ok(err)
	if !slices.Equal(names, []string{"other"}) {
		t.Fatalf("names are %q", names)
	}
	if err = f.fs.Rename(f.path("other"), f.path("other/t-0-delete/x")); err == nil {
		t.Fatal("a directory moved into itself")
	}
}

func remove(t *testing.T, f fixture) {
	f.ok(f.fs.MkdirAll(f.path("d")))
	f.write("d/a", "x")
	if err := f.fs.Remove(f.path("d")); err == nil {
		t.Fatal("a directory with content was removed")
	}
	f.ok(f.fs.Remove(f.path("d/a")))
	f.ok(f.fs.Remove(f.path("d")))
	_, err := f.fs.Stat(f.path("d"))
	f.is(err, fs.ErrNotExist)
}

func removeAll(_ *testing.T, f fixture) {
	f.ok(f.fs.MkdirAll(f.path("d/e")))
	f.write("d/e/a", "x")
	f.write("d/b", "x")
	f.ok(f.fs.RemoveAll(f.path("d")))
	f.ok(f.fs.RemoveAll(f.path("d")))
	_, err := f.fs.Stat(f.path("d"))
	f.is(err, fs.ErrNotExist)
}

func removedOpen(_ *testing.T, f fixture) {
	file := f.write("a", "still here")
	f.ok(f.fs.Remove(f.path("a")))
	f.wants(file, "still here")
}

func mkdirAll(t *testing.T, f fixture) {
	f.ok(f.fs.MkdirAll(f.path("x/y/z")))
	f.ok(f.fs.MkdirAll(f.path("x/y/z")))
	info, err := f.fs.Stat(f.path("x/y/z"))
	f.ok(err)
	if !info.IsDir {
		t.Fatal("not a directory")
	}
	f.write("file", "")
	if err = f.fs.MkdirAll(f.path("file/z")); err == nil {
		t.Fatal("a directory was made below a file")
	}
}

func list(t *testing.T, f fixture) {
	f.write("b", "")
	f.write("a", "")
	f.ok(f.fs.MkdirAll(f.path("c/d")))
	names, err := f.fs.List(f.dir)
	f.ok(err)
	if !slices.Equal(names, []string{"a", "b", "c"}) {
		t.Fatalf("names are %q", names)
	}
}

func missing(_ *testing.T, f fixture) {
	_, err := f.fs.Open(f.path("no"))
	f.is(err, fs.ErrNotExist)
	_, err = f.fs.OpenRead(f.path("no"))
	f.is(err, fs.ErrNotExist)
	_, err = f.fs.Create(f.path("no/file"))
	f.is(err, fs.ErrNotExist)
	_, err = f.fs.Stat(f.path("no"))
	f.is(err, fs.ErrNotExist)
	_, err = f.fs.List(f.path("no"))
	f.is(err, fs.ErrNotExist)
	_, err = f.fs.Usage(f.path("no"))
	f.is(err, fs.ErrNotExist)
	_, err = f.fs.Lock(f.path("no/lock"))
	f.is(err, fs.ErrNotExist)
	f.is(f.fs.Rename(f.path("no"), f.path("other")), fs.ErrNotExist)
	f.is(f.fs.Remove(f.path("no")), fs.ErrNotExist)
	f.is(f.fs.SyncDir(f.path("no")), fs.ErrNotExist)
}

func mapping(t *testing.T, f fixture) {
	file := f.write("a", "")
	m, err := file.Map(1 << 20)
	f.ok(err)
	_, err = file.WriteAt([]byte("seen"), 0)
	f.ok(err)
	_, err = file.WriteAt(bytes.Repeat([]byte("x"), 9000), 4)
	f.ok(err)
	if b := m.Bytes(); len(b) != 1<<20 || string(b[:5]) != "seenx" || b[9003] != 'x' {
		t.Fatalf("a mapping of %d bytes shows %q", len(b), b[:5])
	}
	f.ok(m.Close())
}

func mappingEmpty(t *testing.T, f fixture) {
	m, err := f.write("a", "x").Map(0)
	f.ok(err)
	if len(m.Bytes()) != 0 {
		t.Fatal("a mapping of size 0 has bytes")
	}
	f.ok(m.Close())
}

func lock(_ *testing.T, f fixture) {
	held, err := f.fs.Lock(f.path(".lock"))
	f.ok(err)
	_, err = f.fs.Lock(f.path(".lock"))
	f.is(err, vfs.ErrLocked)
	other, err := f.fs.Lock(f.path("other.lock"))
	f.ok(err)
	f.ok(other.Close())
	f.ok(held.Close())
	held, err = f.fs.Lock(f.path(".lock"))
	f.ok(err)
	f.ok(held.Close())
	f.holds(".lock", "")
}

func usage(t *testing.T, f fixture) {
	u, err := f.fs.Usage(f.dir)
	f.ok(err)
	if u.Total <= 0 || u.Free < 0 || u.Free > u.Total {
		t.Fatalf("usage is %+v", u)
	}
}

func syncs(_ *testing.T, f fixture) {
	file := f.write("a", "x")
	f.ok(file.Sync())
	f.ok(f.fs.SyncDir(f.dir))
	file, err := f.fs.OpenRead(f.path("a"))
	f.ok(err)
	f.ok(file.Sync())
	f.ok(file.Close())
}

func closed(_ *testing.T, f fixture) {
	file := f.write("a", "x")
	f.ok(file.Close())
	f.is(file.Close(), fs.ErrClosed)
	_, err := file.ReadAt(make([]byte, 1), 0)
	f.is(err, fs.ErrClosed)
	_, err = file.WriteAt([]byte("x"), 0)
	f.is(err, fs.ErrClosed)
}

// parallel finds torn or lost bytes, and data races under the race detector.
func parallel(t *testing.T, f fixture) {
	file := f.write("a", "")
	block := bytes.Repeat([]byte("0123456789abcdef"), 16)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			b := make([]byte, len(block))
			for i := range 50 {
				n, err := file.ReadAt(b, int64(i*len(block)))
				if err != nil && !errors.Is(err, io.EOF) || !bytes.Equal(b[:n], block[:n]) {
					t.Errorf("block %d shows %q, %v", i, b[:n], err)
					return
				}
			}
		})
	}
	for i := range 50 {
		_, err := file.WriteAt(block, int64(i*len(block)))
		f.ok(err)
	}
	wg.Wait()
}
