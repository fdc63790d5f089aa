package guard_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/guard"
	"github.com/tidemark-io/tidemark/tier/object/memstore"
)

// parted is a store that takes bodies above 10 bytes in parts of 4, and fails some of the requests.
type parted struct {
	object.Store
	fail    func(op string) bool
	uploads map[string][]string
	aborted int
}

func (p *parted) PartBytes(size int64) int64 {
	if size <= 10 {
		return 0
	}
	return 4
}

func (p *parted) failed(op string) error {
	if p.fail != nil && p.fail(op) {
		return object.ErrUnavailable
	}
	return nil
}

func (p *parted) BeginUpload(context.Context, string) (string, error) {
	p.uploads["1"] = nil
	return "1", p.failed("begin")
}

func (p *parted) PutPart(_ context.Context, _, upload string, number int, b object.Body) (object.Part, error) {
	text, err := io.ReadAll(io.NewSectionReader(b, 0, b.Size()))
	if err == nil {
		err = p.failed("part")
	}
	if err != nil {
		return object.Part{}, err
	}
	p.uploads[upload] = append(p.uploads[upload][:number-1], string(text))
	return object.Part{Number: number}, nil
}

func (p *parted) CompleteUpload(ctx context.Context, key, upload string, parts []object.Part, cond object.Condition) (object.Token, error) {
	if err := p.failed("complete"); err != nil {
		return "", err
	}
	return p.Put(ctx, key, strings.NewReader(strings.Join(p.uploads[upload], "")), cond)
}

func (p *parted) AbortUpload(context.Context, string, string) error {
	p.aborted++
	return nil
}

// TestBO097EachPartIsTriedAgainByItself: with every second request failing, an upload of many parts would never end
// if it began anew each time.
func TestBO097EachPartIsTriedAgainByItself(t *testing.T) {
	n := 0
	p := &parted{Store: memstore.New(nil), uploads: map[string][]string{}, fail: func(string) bool { n++; return n%2 == 1 }}
	g := guard.New(p, guard.Options{Clock: newClock(), Random: half})
	body := strings.Repeat("0123456789", 20)
	if _, err := g.Put(t.Context(), "k", strings.NewReader(body), object.Condition{}); err != nil {
		t.Fatal(err)
	}
	if b, _, err := object.Read(t.Context(), g, "k", 1000); string(b) != body {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if p.aborted != 0 {
		t.Error("given up")
	}
}

// TestCompletingAnUploadMayTakeASecondForEachPart: a server may have to write the whole object anew.
func TestCompletingAnUploadMayTakeASecondForEachPart(t *testing.T) {
	for _, c := range []struct {
		parts int
		ok    bool
	}{{30, true}, {28, false}} {
		clock := newClock()
		p := &parted{Store: memstore.New(nil), uploads: map[string][]string{}, fail: func(op string) bool {
			if op == "complete" {
				clock.advance(44 * time.Second)
			}
			return false
		}}
		g := guard.New(p, guard.Options{Clock: clock, Random: half})
		_, err := g.Put(t.Context(), "k", strings.NewReader(strings.Repeat("part", c.parts)), object.Condition{})
		if (err == nil) != c.ok || err != nil && !errors.Is(err, object.ErrUnavailable) {
			t.Errorf("%d parts that take 44 s: %v", c.parts, err)
		}
	}
}

// TestFM39AFailedUploadIsGivenUp: also when the context of the put is gone.
func TestFM39AFailedUploadIsGivenUp(t *testing.T) {
	for _, op := range []string{"part", "complete"} {
		ctx, cancel := context.WithCancel(t.Context())
		p := &parted{Store: memstore.New(nil), uploads: map[string][]string{}, fail: func(o string) bool {
			if o == op {
				cancel()
			}
			return o == op
		}}
		g := guard.New(p, guard.Options{Clock: newClock(), Random: half})
		_, err := g.Put(ctx, "k", strings.NewReader("more than ten bytes"), object.IfAbsent())
		if !errors.Is(err, object.ErrUnavailable) || p.aborted != 1 {
			t.Errorf("%s: %v, given up %d times", op, err, p.aborted)
		}
	}
}
