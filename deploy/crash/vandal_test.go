package crash

import (
	"bytes"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// vandal damages files of a broker that does not run, of kinds that can be made again from the log.
type vandal struct {
	t      testing.TB
	random *rand.Rand
	logs   string
	done   map[string]int // what was done, for the test's log
}

// strike damages some files.
func (v *vandal) strike(times int) {
	v.t.Helper()
	for range times {
		switch v.random.IntN(8) {
		case 0, 1, 2:
			v.damage(".index")
		case 3, 4:
			v.damage(".timeindex")
		case 5:
			v.damage(".snapshot")
		case 6:
			v.damage("checkpoint")
		case 7:
			v.tear()
		}
	}
}

// files are those whose names end in a suffix.
func (v *vandal) files(suffix string) (list []string) {
	v.t.Helper()
	err := filepath.WalkDir(v.logs, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, suffix) {
			list = append(list, path)
		}
		return err
	})
	if err != nil {
		v.t.Fatal(err)
	}
	return list
}

func (v *vandal) damage(suffix string) {
	v.t.Helper()
	files := v.files(suffix)
	if len(files) == 0 {
		return
	}
	name, other := files[v.random.IntN(len(files))], files[v.random.IntN(len(files))]
	data, err := os.ReadFile(name)
	if err != nil {
		v.t.Fatal(err)
	}
	how := v.random.IntN(5)
	if how == 4 && passesFor(name, other) {
		how = 0
	}
	switch how {
	case 0:
		err = os.Remove(name)
	case 1:
		err = os.Truncate(name, int64(v.random.IntN(len(data)+1)))
	case 2:
		err = os.WriteFile(name, append(data, make([]byte, 4<<10)...), 0o600)
	case 3:
		err = os.WriteFile(name, make([]byte, len(data)), 0o600)
	case 4:
		err = swap(name, other)
	}
	if err != nil {
		v.t.Fatal(err)
	}
	v.done[[]string{"removed", "cut", "padded with zeros", "zeroed", "swapped"}[how]+" "+suffix]++
}

// passesFor tells whether a can't be told from b, here as in Kafka, and says something else: a sound snapshot of another moment, offsets
// of another kind as those where the logs start, or the times of a partition that is written in step, which are true here but for some
// batches that came a millisecond earlier or later.
func passesFor(a, b string) bool {
	const start, offsets, times = "log-start-offset-checkpoint", "-offset-checkpoint", ".timeindex"
	twins := filepath.Dir(a) != filepath.Dir(b)
	a, b = filepath.Base(a), filepath.Base(b)
	return strings.HasSuffix(a, ".snapshot") ||
		strings.HasSuffix(a, times) && a == b && twins ||
		a != b && (a == start || b == start) && strings.HasSuffix(a, offsets) && strings.HasSuffix(b, offsets)
}

func swap(a, b string) error {
	if a == b {
		return nil
	}
	if err := os.Rename(a, a+".swapped"); err != nil {
		return err
	}
	if err := os.Rename(b, a); err != nil {
		return err
	}
	return os.Rename(a+".swapped", b)
}

// tear leaves the beginning of a batch behind the end of an active segment, as a write does that was under way.
func (v *vandal) tear() {
	v.t.Helper()
	active := map[string]string{}
	for _, name := range v.files(".log") {
		active[filepath.Dir(name)] = name // they come in order
	}
	for _, name := range active {
		data, err := os.ReadFile(name)
		if err != nil {
			v.t.Fatal(err)
		}
		if len(data) < 100 || v.random.IntN(2) == 0 {
			continue
		}
		torn := bytes.Clone(data[:1+v.random.IntN(99)])
		if err := os.WriteFile(name, append(data, torn...), 0o600); err != nil {
			v.t.Fatal(err)
		}
		v.done["torn .log"]++
	}
}

func (v *vandal) String() string { return fmt.Sprint(v.done) }

// The high watermark under the name of the log start would be the end of all that is below it.
func TestTheVandalLeavesNoSoundFileInAnothersPlace(t *testing.T) {
	v := &vandal{t: t, random: rand.New(rand.NewPCG(1, 1)), logs: t.TempDir(), done: map[string]int{}}
	names := []string{"log-start-offset-checkpoint", "recovery-point-offset-checkpoint", "replication-offset-checkpoint", "t-0-leader-epoch-checkpoint"}
	for v.done["swapped checkpoint"] < 20 {
		for _, name := range names {
			if err := os.WriteFile(filepath.Join(v.logs, name), []byte(name), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		v.damage("checkpoint")
		start, _ := os.ReadFile(filepath.Join(v.logs, names[0])) // it may be gone
		if got := string(start); got == names[1] || got == names[2] {
			t.Fatalf("%s has what belongs into %s", names[0], got)
		}
	}
}
