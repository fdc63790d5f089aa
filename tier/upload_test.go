package tier

import (
	"io"
	"path/filepath"
	"testing"

	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/tier/object"
)

func TestASegmentIsSentFromItsFileAndThatIsASignOfLife(t *testing.T) {
	file, err := vfs.OS{}.Create(filepath.Join(t.TempDir(), "segment"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	p := new(partition)
	var body object.Filed = &segmentBody{p: p, file: file, SectionReader: io.NewSectionReader(file, 0, 0)}
	fd, offset, ok := body.File()
	if want, _ := file.Fd(); !ok || fd != want || offset != 0 {
		t.Errorf("the file is %d from %d on, %v, not %d from 0 on", fd, offset, ok, want)
	}
	if p.steps.Load() == 0 {
		t.Error("the watchdog is not told")
	}
}
