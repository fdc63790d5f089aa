package tier

import (
	"io"
	"path/filepath"
	"testing"

	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/faultstore"
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

// A server that takes longer to join the parts than anybody waits for has them all the same: they are not sent again.
func TestASegmentIsSentOnceThoughTheAnswerIsLost(t *testing.T) {
	r := newRig(t)
	r.lead(StartHere)
	puts := 0
	r.faults = func(c faultstore.Call) faultstore.Fault {
		if isData(c) {
			puts++
			return faultstore.LoseAnswer
		}
		return faultstore.None
	}
	r.produce(40)
	r.settle()
	if s := r.stats("orders"); s.BehindSegments > 0 || s.Err != nil || puts != r.state("orders").Segments {
		t.Errorf("%d puts for %d segments; %+v", puts, r.state("orders").Segments, s)
	}
	r.check()
}
