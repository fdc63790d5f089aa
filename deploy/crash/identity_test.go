package crash

import (
	"os"
	"path/filepath"
	"testing"
)

// FM-34: a data directory has one broker, before and after a kill.
func TestSecondProcessIsRefused(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	b.start()
	second := brokerAt(t, b.Data)
	second.refuses("lock")
	b.Kill()
	b.start()
	second.refuses("lock")
}

// FM-33, safety.md 8: directories and buckets that do not belong together.
func TestForeignDirectoriesAndBucketsAreRefused(t *testing.T) {
	t.Parallel()
	one, other := newBroker(t), newBroker(t)
	for _, b := range []*broker{one, other} {
		b.start()
		b.create("t", 1)
		b.stop()
	}
	one.refuses("cluster", "--store", "file://"+filepath.Join(other.Data, "store"))
	one.refuses("broker", "--set", "node.id=2")
	one.refuses("emptied", "--store", "file://"+filepath.Join(one.Data, "elsewhere"))

	store := filepath.Join(one.Data, "store")
	if err := os.Rename(store, store+".kept"); err != nil {
		t.Fatal(err)
	}
	one.refuses("emptied")
	if err := os.RemoveAll(store); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(store+".kept", store); err != nil {
		t.Fatal(err)
	}
	one.start()
}
