package vfs_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/broker/vfs"
)

const crashes = 200 // clones tried for what may or may not happen

func rng(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

func write(t testing.TB, m vfs.FS, name, text string) vfs.File {
	t.Helper()
	file, err := m.Create(name)
	ok(t, err)
	_, err = file.WriteAt([]byte(text), 0)
	ok(t, err)
	return file
}

// content is the text of a file, or "absent".
func content(t testing.TB, m vfs.FS, name string) string {
	t.Helper()
	file, err := m.OpenRead(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "absent"
	}
	ok(t, err)
	defer file.Close()
	size, err := file.Size()
	ok(t, err)
	b := make([]byte, size)
	if _, err = file.ReadAt(b, 0); !errors.Is(err, io.EOF) {
		ok(t, err)
	}
	return string(b)
}

// outcomes are all results of look over many power losses, sorted.
func outcomes(m *vfs.Mem, look func(*vfs.Mem) string) []string {
	var all []string
	for seed := range uint64(crashes) {
		all = append(all, look(m.CrashClone(rng(seed))))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func TestPowerLossEntries(t *testing.T) {
	look := func(t *testing.T, names ...string) func(*vfs.Mem) string {
		return func(m *vfs.Mem) string {
			var s []string
			for _, name := range names {
				s = append(s, content(t, m, name))
			}
			return strings.Join(s, " ")
		}
	}
	tests := []struct {
		name  string
		do    func(t *testing.T, m *vfs.Mem) // /a holds "old", durable
		names []string
		want  []string
	}{
		{
			"a synced file without SyncDir may be lost",
			func(t *testing.T, m *vfs.Mem) { ok(t, write(t, m, "b", "new").Sync()) },
			[]string{"a", "b"},
			[]string{"old absent", "old new"},
		},
		{
			"after Sync and SyncDir it is there",
			func(t *testing.T, m *vfs.Mem) {
				ok(t, write(t, m, "b", "new").Sync())
				ok(t, m.SyncDir("/"))
			},
			[]string{"a", "b"},
			[]string{"old new"},
		},
		{
			"an entry without Sync of the file shows a prefix",
			func(t *testing.T, m *vfs.Mem) {
				write(t, m, "b", "n")
				ok(t, m.SyncDir("/"))
			},
			[]string{"b"},
			[]string{"", "n"},
		},
		{
			"a rename without SyncDir happened whole or not at all",
			func(t *testing.T, m *vfs.Mem) {
				ok(t, write(t, m, "b", "new").Sync())
				ok(t, m.SyncDir("/"))
				ok(t, m.Rename("b", "a"))
			},
			[]string{"a", "b"},
			[]string{"new absent", "old new"},
		},
		{
			"write, sync, rename, SyncDir replaces for good",
			func(t *testing.T, m *vfs.Mem) {
				ok(t, write(t, m, "b", "new").Sync())
				ok(t, m.Rename("b", "a"))
				ok(t, m.SyncDir("/"))
			},
			[]string{"a", "b"},
			[]string{"new absent"},
		},
		{
			"a rename between directories happened whole or not at all",
			func(t *testing.T, m *vfs.Mem) {
				ok(t, m.MkdirAll("d"))
				ok(t, m.SyncDir("/"))
				ok(t, m.Rename("a", "d/a"))
				write(t, m, "x", "")
			},
			[]string{"a", "d/a"},
			[]string{"absent old", "old absent"},
		},
		{
			"a rename between directories is durable after SyncDir of both",
			func(t *testing.T, m *vfs.Mem) {
				ok(t, m.MkdirAll("d"))
				ok(t, write(t, m, "d/b", "before").Sync())
				ok(t, m.Rename("a", "d/a"))
				ok(t, m.SyncDir("/"))
				ok(t, m.SyncDir("d"))
			},
			[]string{"a", "d/a", "d/b"},
			[]string{"absent old before"},
		},
		{
			"a rename between directories takes along what came before it",
			func(t *testing.T, m *vfs.Mem) {
				ok(t, m.MkdirAll("d"))
				ok(t, write(t, m, "d/b", "before").Sync())
				ok(t, m.Rename("a", "d/a"))
				ok(t, m.SyncDir("/"))
			},
			[]string{"a", "d/a", "d/b"},
			[]string{"absent old before"},
		},
		{
			"a removal without SyncDir may be undone",
			func(t *testing.T, m *vfs.Mem) { ok(t, m.Remove("a")) },
			[]string{"a"},
			[]string{"absent", "old"},
		},
		{
			"a removal stays after SyncDir",
			func(t *testing.T, m *vfs.Mem) {
				ok(t, m.Remove("a"))
				ok(t, m.SyncDir("/"))
			},
			[]string{"a"},
			[]string{"absent"},
		},
		{
			"a new directory needs SyncDir of its parent",
			func(t *testing.T, m *vfs.Mem) {
				ok(t, m.MkdirAll("d"))
				ok(t, write(t, m, "d/b", "new").Sync())
				ok(t, m.SyncDir("d"))
			},
			[]string{"d/b"},
			[]string{"absent", "new"},
		},
		{
			"a truncation without Sync may be undone",
			func(t *testing.T, m *vfs.Mem) { write(t, m, "a", "") },
			[]string{"a"},
			[]string{"", "old"},
		},
		{
			"changes of one file survive in order",
			func(t *testing.T, m *vfs.Mem) {
				file := write(t, m, "a", "") // cuts "old"
				_, err := file.WriteAt([]byte("N"), 0)
				ok(t, err)
				_, err = file.WriteAt([]byte("M"), 0)
				ok(t, err)
			},
			[]string{"a"},
			[]string{"", "M", "N", "old"},
		},
		{
			"a removed tree is gone whole, in part, or not",
			func(t *testing.T, m *vfs.Mem) {
				ok(t, m.MkdirAll("d"))
				ok(t, write(t, m, "d/a", "1").Sync())
				ok(t, write(t, m, "d/b", "2").Sync())
				ok(t, m.SyncDir("d"))
				ok(t, m.SyncDir("/"))
				ok(t, m.RemoveAll("d"))
			},
			[]string{"d/a", "d/b"},
			[]string{"1 2", "absent 2", "absent absent"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := vfs.NewMem()
			ok(t, write(t, m, "a", "old").Sync())
			ok(t, m.SyncDir("/"))
			tt.do(t, m)
			if got := outcomes(m, look(t, tt.names...)); !slices.Equal(got, tt.want) {
				t.Errorf("after a power loss %q, want %q", got, tt.want)
			}
			if got, want := look(t, tt.names...)(m.ProcessCrashClone()), look(t, tt.names...)(m); got != want {
				t.Errorf("after a process crash %q, want %q", got, want)
			}
		})
	}
}

func TestPowerLossKeepsPrefixOfAppendsWithTornSector(t *testing.T) {
	m := vfs.NewMem()
	const synced, size = 700, 3000
	text := bytes.Repeat([]byte("0123456789"), size/10)
	file := write(t, m, "a", string(text[:synced]))
	ok(t, file.Sync())
	ok(t, m.SyncDir("/"))
	for off := synced; off < size; off += 100 {
		_, err := file.WriteAt(text[off:off+100], int64(off))
		ok(t, err)
	}
	var nothing, all, clean, torn int
	for seed := range uint64(crashes) {
		got := content(t, m.CrashClone(rng(seed)), "a")
		same := 0
		for same < len(got) && got[same] == text[same] {
			same++
		}
		switch {
		case same < synced || len(got) > size:
			t.Fatalf("seed %d: %d bytes of which %d are right", seed, len(got), same)
		case len(got) == synced:
			nothing++
		case len(got) == size && same == size:
			all++
		case len(got) == same:
			clean++
		case (len(got)%512 == 0 || len(got) == size) && len(got)-same <= 512:
			torn++
		default:
			t.Fatalf("seed %d: torn from %d to %d", seed, same, len(got))
		}
	}
	if nothing == 0 || all == 0 || clean == 0 || torn == 0 {
		t.Errorf("of %d crashes %d lost all, %d nothing, %d ended clean, %d torn: each must happen", crashes, nothing, all, clean, torn)
	}
}

func TestCloneIsApartFromTheCrashed(t *testing.T) {
	m := vfs.NewMem()
	file := write(t, m, "a", "x")
	_, err := m.Lock("lock")
	ok(t, err)
	ok(t, file.Sync())
	ok(t, m.SyncDir("/"))
	for name, clone := range map[string]*vfs.Mem{"power": m.CrashClone(rng(1)), "process": m.ProcessCrashClone()} {
		_, err = file.WriteAt([]byte("Y"), 0)
		ok(t, err)
		if got := content(t, clone, "a"); got != "x" {
			t.Errorf("%s: the crashed one wrote %q into the clone", name, got)
		}
		if _, err := clone.Lock("lock"); err != nil {
			t.Errorf("%s: the lock outlived its holder: %v", name, err)
		}
		_, err = file.WriteAt([]byte("x"), 0)
		ok(t, err)
	}
}

func TestProcessCrashMakesNothingDurable(t *testing.T) {
	m := vfs.NewMem()
	write(t, m, "a", "x")
	got := outcomes(m.ProcessCrashClone(), func(m *vfs.Mem) string { return content(t, m, "a") })
	if want := []string{"", "absent", "x"}; !slices.Equal(got, want) {
		t.Errorf("power loss after a process crash gives %q, want %q", got, want)
	}
}

func TestPowerLossLeavesOnlyDurableThings(t *testing.T) {
	m := vfs.NewMem()
	write(t, m, "a", "x")
	clone := m.CrashClone(rng(3))
	first := dump(t, clone, "/")
	for seed := range uint64(20) {
		if again := dump(t, clone.CrashClone(rng(seed)), "/"); again != first {
			t.Fatalf("a second power loss changed %q to %q", first, again)
		}
	}
}

// dump is the whole tree in one string.
func dump(t testing.TB, m vfs.FS, dir string) string {
	t.Helper()
	names, err := m.List(dir)
	ok(t, err)
	var s strings.Builder
	for _, name := range names {
		p := strings.TrimSuffix(dir, "/") + "/" + name
		info, err := m.Stat(p)
		ok(t, err)
		if info.IsDir {
			fmt.Fprintf(&s, "%s{%s}", name, dump(t, m, p))
		} else {
			fmt.Fprintf(&s, "%s=%q;", name, content(t, m, p))
		}
	}
	return s.String()
}

// A random history against a plain model of what was promised: synced bytes stay until they are overwritten or cut,
// names stay where SyncDir left them until the next change of their directory, and one seed gives one outcome.
func TestPowerLossKeepsWhatWasSynced(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := vfs.NewMem()
		dirs := []string{"/", "/d", "/e"}
		ok(t, m.MkdirAll("/d"))
		ok(t, m.MkdirAll("/e"))
		ok(t, m.SyncDir("/"))
		synced := map[string]string{} // content that was synced and not touched since
		durable := map[string]bool{}  // names whose directory was synced and which lead where they led then
		names := []string{"/a", "/b", "/d/a", "/d/b", "/e/a"}
		anyName := rapid.SampledFrom(names)
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			name := anyName.Draw(rt, "name")
			switch rapid.IntRange(0, 5).Draw(rt, "op") {
			case 0, 1:
				file, err := m.Open(name)
				if err != nil {
					delete(durable, name)
					file, err = m.Create(name)
				}
				ok(t, err)
				size, err := file.Size()
				ok(t, err)
				_, err = file.WriteAt(rapid.SliceOfN(rapid.Byte(), 1, 600).Draw(rt, "bytes"), rapid.Int64Range(0, size).Draw(rt, "at"))
				ok(t, err)
				delete(synced, name)
			case 2:
				if file, err := m.Open(name); err == nil {
					ok(t, file.Sync())
					synced[name] = content(t, m, name)
				}
			case 3:
				dir := rapid.SampledFrom(dirs).Draw(rt, "dir")
				ok(t, m.SyncDir(dir))
				for _, other := range names {
					durable[other] = durable[other] || path.Dir(other) == dir
				}
			case 4:
				to := anyName.Draw(rt, "to")
				if to != name && m.Rename(name, to) == nil {
					delete(durable, name)
					delete(durable, to)
					text, was := synced[name]
					delete(synced, name)
					delete(synced, to)
					if was {
						synced[to] = text
					}
				}
			case 5:
				if m.Remove(name) == nil {
					delete(durable, name)
					delete(synced, name)
				}
			}
		}
		seed := rapid.Uint64().Draw(rt, "seed")
		clone := m.CrashClone(rng(seed))
		for _, name := range names {
			if want, is := synced[name]; is && durable[name] && content(t, clone, name) != want {
				rt.Fatalf("%s was synced with its directory and is lost", name)
			}
			if now := content(t, m, name); durable[name] && now == "absent" && content(t, clone, name) != now {
				rt.Fatalf("%s was gone before its directory was synced and is back", name)
			}
		}
		if a, b := dump(t, clone, "/"), dump(t, m.CrashClone(rng(seed)), "/"); a != b {
			rt.Fatalf("one seed gave %q and %q", a, b)
		}
		if a, b := dump(t, m.ProcessCrashClone(), "/"), dump(t, m, "/"); a != b {
			rt.Fatalf("a process crash turned %q into %q", b, a)
		}
	})
}
