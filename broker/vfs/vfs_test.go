package vfs_test

import (
	"errors"
	"io/fs"
	"syscall"
	"testing"

	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/vfs/vfstest"
)

func TestOS(t *testing.T) {
	vfstest.Run(t, func(t *testing.T) (vfs.FS, string) { return vfs.OS{}, t.TempDir() })
}

func TestMem(t *testing.T) {
	vfstest.Run(t, func(t *testing.T) (vfs.FS, string) { return memWithDir(t), "/data" })
}

func TestFaultWithoutRules(t *testing.T) {
	vfstest.Run(t, func(t *testing.T) (vfs.FS, string) { return vfs.NewFault(memWithDir(t)), "/data" })
}

func memWithDir(t *testing.T) *vfs.Mem {
	t.Helper()
	m := vfs.NewMem()
	ok(t, m.MkdirAll("/data"))
	return m
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestOSFileHasDescriptorAndMemFileHasNone(t *testing.T) {
	file, err := vfs.OS{}.Create(t.TempDir() + "/a")
	ok(t, err)
	defer file.Close()
	if _, has := file.Fd(); !has {
		t.Error("no descriptor for sendfile under the OS")
	}
	file, err = vfs.NewMem().Create("a")
	ok(t, err)
	if _, has := file.Fd(); has {
		t.Error("a descriptor in memory")
	}
}

// /dev/full refuses every write with ENOSPC.
func TestOSFullDiskIsErrNoSpace(t *testing.T) {
	file, err := vfs.OS{}.Open("/dev/full")
	if err != nil {
		t.Skip("no /dev/full here")
	}
	defer file.Close()
	_, err = file.WriteAt([]byte("x"), 0)
	if !errors.Is(err, vfs.ErrNoSpace) || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("error is %v", err)
	}
}

func TestMemFullDiskTakesPartOfTheWrite(t *testing.T) {
	m := vfs.NewMem()
	m.SetSpace(10)
	file, err := m.Create("a")
	ok(t, err)
	if n, err := file.WriteAt([]byte("0123456"), 0); n != 7 || err != nil {
		t.Fatalf("a write that fits: %d, %v", n, err)
	}
	if n, err := file.WriteAt([]byte("789abc"), 7); n != 3 || !errors.Is(err, vfs.ErrNoSpace) {
		t.Fatalf("a write that does not fit: %d, %v", n, err)
	}
	if n, err := file.WriteAt([]byte("x"), 2); n != 1 || err != nil {
		t.Fatalf("writing over needs no room: %d, %v", n, err)
	}
	if err := file.Truncate(11); !errors.Is(err, vfs.ErrNoSpace) {
		t.Fatalf("growing by truncation: %v", err)
	}
	ok(t, file.Truncate(4))
	wantFree(t, m, 6)
	ok(t, m.Remove("a"))
	wantFree(t, m, 6) // still open
	ok(t, file.Close())
	wantFree(t, m, 10)
	m.SetSpace(0)
	wantFree(t, m, 0)
}

func wantFree(t *testing.T, m *vfs.Mem, want int64) {
	t.Helper()
	u, err := m.Usage("/")
	ok(t, err)
	if u.Free != want {
		t.Fatalf("%d bytes are free, want %d", u.Free, want)
	}
}

func TestFaultRules(t *testing.T) {
	m := memWithDir(t)
	f := vfs.NewFault(m)
	file, err := f.Create("/data/0.log")
	ok(t, err)

	var seen []string
	f.SetRules(
		vfs.Rule{Op: vfs.OpWrite, Path: "*.log", Err: vfs.ErrNoSpace, Landed: 2, Times: 1},
		vfs.Rule{Op: vfs.OpSync, Skip: 1, Times: 1, Err: syscall.EIO},
		vfs.Rule{Hook: func(c vfs.Call) { seen = append(seen, c.String()) }},
	)
	if n, err := file.WriteAt([]byte("abcd"), 0); n != 2 || !errors.Is(err, vfs.ErrNoSpace) {
		t.Fatalf("failing write: %d, %v", n, err)
	}
	if n, err := file.WriteAt([]byte("cd"), 2); n != 2 || err != nil {
		t.Fatalf("write after it: %d, %v", n, err)
	}
	ok(t, file.Sync())
	if err := file.Sync(); !errors.Is(err, syscall.EIO) {
		t.Fatalf("second sync: %v", err)
	}
	ok(t, f.Rename("/data/0.log", "/data/1.log"))
	want := []string{"write /data/0.log 2+2", "sync /data/0.log", "rename /data/0.log /data/1.log"}
	if len(seen) != len(want) {
		t.Fatalf("calls seen: %q", seen)
	}
	for i := range want {
		if seen[i] != want[i] {
			t.Errorf("call %d is %q, want %q", i, seen[i], want[i])
		}
	}
}

// A broker that syncs once more after an error must be found out, not saved.
func TestFaultSyncAfterFailedSyncMakesNothingDurable(t *testing.T) {
	m := memWithDir(t)
	f := vfs.NewFault(m)
	file, err := f.Create("/data/a")
	ok(t, err)
	ok(t, m.SyncDir("/"))
	ok(t, m.SyncDir("/data"))
	_, err = file.WriteAt([]byte("x"), 0)
	ok(t, err)
	f.SetRules(vfs.Rule{Op: vfs.OpSync, Times: 1, Err: syscall.EIO})
	if err := file.Sync(); err == nil {
		t.Fatal("the sync was to fail")
	}
	ok(t, file.Sync())
	lost := false
	for seed := range uint64(50) {
		info, err := m.CrashClone(rng(seed)).Stat("/data/a")
		ok(t, err)
		lost = lost || info.Size == 0
	}
	if !lost {
		t.Fatal("the second sync made up for the first")
	}
}

func TestFaultErrorsKeepTheirMeaning(t *testing.T) {
	f := vfs.NewFault(memWithDir(t))
	f.SetRules(vfs.Rule{Op: vfs.OpOpen, Path: "/data/a", Err: fs.ErrNotExist})
	if _, err := f.Open("/data/a"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("error is %v", err)
	}
}
