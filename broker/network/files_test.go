package network

import (
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/api"
	"github.com/tidemark-io/tidemark/broker/vfs"
)

// counted is a range that counts its releases.
func counted(f vfs.File, offset, length int64, releases *atomic.Int32) api.Part {
	return api.Part{Range: vfs.Range{File: f, Offset: offset, Length: length, Release: func() { releases.Add(1) }}}
}

// pieces is a vfs.Resident of which no more can be had than its bytes, up to the next multiple of 1000.
type pieces struct {
	vfs.File
	text string
}

func (p pieces) Fd() (uintptr, bool) { return 0, false }

func (p pieces) Bytes(off, n int64) []byte { return []byte(p.text[off:min(off+n, off-off%1000+1000)]) }

// scattered is a vfs.Scattered: every other thousand of its bytes lies in another file, backwards.
type scattered struct {
	pieces
	elsewhere vfs.File
}

func (s scattered) Piece(off, n int64) vfs.Range {
	if number := off / 1000; number%2 == 1 {
		at := int64(len(s.text)) - (number+1)*1000
		return vfs.Range{File: s.elsewhere, Offset: at + off%1000, Length: min(n, 1000-off%1000)}
	}
	return vfs.Range{}
}

// What lies in files here and there, and in memory between, goes as it lies.
func TestAScatteredFileLeavesBySendfileWhereItLiesInFiles(t *testing.T) {
	const size = 300_000
	f, _ := segment(t, vfs.OS{}, t.TempDir(), size)
	stored := make([]byte, size)
	if _, err := f.ReadAt(stored, 0); err != nil {
		t.Fatal(err)
	}
	var text []byte
	for at := size - 1000; at >= 0; at -= 1000 {
		text = append(text, stored[at:at+1000]...)
	}
	var releases atomic.Int32
	r := start(t, func(_ time.Time, q *api.Request) api.Reply {
		return respond(q, "one:", counted(scattered{pieces{text: string(text)}, f}, 500, size-700, &releases), api.Part{Bytes: []byte(":end")})
	})
	c := r.dial()
	c.send(frame(0, 1, ""))
	c.wants(1, "one:"+string(text[500:size-200])+":end")
	ok(t, c.Close())
	r.allReturned()
	if file := r.metric("sent_bytes_total", "sendfile"); file != size/2-200 || releases.Load() != 1 {
		t.Errorf("%v bytes by sendfile, %d releases", file, releases.Load())
	}
}

func TestFilesLeaveBySendfileAndMemoryFilesByCopy(t *testing.T) {
	const size = 3 << 20
	for _, tt := range []struct {
		name     string
		fs       vfs.FS
		sendfile bool
	}{
		{"files of the OS", vfs.OS{}, true},
		{"files in memory", vfs.NewMem(), false},
		{"files whose bytes can be had in pieces", vfs.NewMem(), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := "/"
			if tt.sendfile {
				dir = t.TempDir()
			}
			f, text := segment(t, tt.fs, dir, size)
			if strings.HasSuffix(tt.name, "in pieces") {
				f = pieces{text: text}
			}
			var releases atomic.Int32
			// Two partitions, as a fetch answer has them: header, records, header, no records, header, records, trailer.
			r := start(t, func(_ time.Time, q *api.Request) api.Reply {
				return respond(q, "one:",
					counted(f, 5, 2<<20, &releases), api.Part{Bytes: []byte(":two:")}, counted(f, 9, 0, &releases),
					api.Part{}, api.Part{Bytes: []byte(":three:")}, counted(f, size-10, 10, &releases), api.Part{Bytes: []byte(":end")})
			})
			c := r.dial()
			want := "one:" + text[5:5+2<<20] + ":two::three:" + text[size-10:] + ":end"
			for i := range 3 {
				c.send(frame(0, int32(i), ""))
				c.wants(int32(i), want)
			}
			ok(t, c.Close())
			r.allReturned()
			if n := releases.Load(); n != 9 {
				t.Errorf("9 ranges were released %d times", n)
			}
			const inFiles = 3 * (2<<20 + 10)
			bySendfile, byCopy := r.metric("sent_bytes_total", "sendfile"), r.metric("sent_bytes_total", "copy")
			if tt.sendfile && (bySendfile != inFiles || byCopy != 0) || !tt.sendfile && (bySendfile != 0 || byCopy != inFiles) {
				t.Errorf("%v bytes by sendfile and %v by copy, of %d", bySendfile, byCopy, inFiles)
			}
			if total := r.metric("sent_bytes_total", "bytes"); total != float64(3*(8+len(want))-inFiles) {
				t.Errorf("%v bytes from memory", total)
			}
		})
	}
}

func TestRangesAreReleasedOnceWhateverHappens(t *testing.T) {
	f, _ := segment(t, vfs.OS{}, t.TempDir(), 12<<20)
	whole := func(q *api.Request, releases *atomic.Int32) api.Reply {
		return respond(q, "", counted(f, 0, 6<<20, releases), counted(f, 6<<20, 6<<20, releases))
	}
	tests := []struct {
		name  string
		reply func(q *api.Request, releases *atomic.Int32) api.Reply
		end   func(t *testing.T, c *client, r *rig)
	}{
		{"the client goes away in the middle", whole, func(t *testing.T, c *client, r *rig) {
			_, err := c.Read(make([]byte, 100))
			ok(t, err)
			ok(t, c.Close())
		}},
		{"the server is closed in the middle", whole, func(t *testing.T, c *client, r *rig) {
			_, err := c.Read(make([]byte, 100))
			ok(t, err)
			if err := r.shut(0); err == nil {
				t.Error("Close had nothing to cut off")
			}
		}},
		{"the answer is not sent after all", func(q *api.Request, releases *atomic.Int32) api.Reply {
			reply := whole(q, releases)
			reply.Outcome = api.Close
			return reply
		}, func(t *testing.T, c *client, _ *rig) { c.wantsEnd() }},
		{"there was to be no reply", func(q *api.Request, releases *atomic.Int32) api.Reply {
			reply := whole(q, releases)
			reply.Outcome = api.NoReply
			return reply
		}, func(t *testing.T, c *client, _ *rig) { ok(t, c.Close()) }},
		{"the file is shorter than promised", func(q *api.Request, releases *atomic.Int32) api.Reply {
			return respond(q, "", counted(f, 12<<20-5, 10, releases), counted(f, 0, 1, releases))
		}, func(t *testing.T, c *client, r *rig) {
			if _, _, err := c.tryAnswer(); err == nil {
				t.Error("an answer came whole")
			}
			eventually(t, "ended", func() bool { return r.metric("connections_closed_total", endFile) == 1 })
		}},
		{"the file can't be read", func(q *api.Request, releases *atomic.Int32) api.Reply {
			bad := vfs.NewFault(vfs.NewMem())
			file, err := bad.Create("a")
			if err != nil {
				panic(err)
			}
			bad.SetRules(vfs.Rule{Op: vfs.OpRead, Err: syscall.EIO})
			return respond(q, "", counted(file, 0, 1, releases), counted(f, 0, 1, releases))
		}, func(t *testing.T, c *client, r *rig) {
			if _, _, err := c.tryAnswer(); err == nil {
				t.Error("an answer came whole")
			}
			eventually(t, "ended", func() bool { return r.metric("connections_closed_total", endFile) == 1 })
		}},
	}
	for _, parked := range []bool{false, true} {
		for _, tt := range tests {
			name := tt.name
			if parked {
				name += ", parked before"
			}
			t.Run(name, func(t *testing.T) {
				var releases atomic.Int32
				r := start(t, func(_ time.Time, q *api.Request) api.Reply {
					reply := tt.reply(q, &releases)
					if !parked {
						return reply
					}
					go q.Complete(reply)
					return api.Reply{Outcome: api.Parked, PipelineOn: true}
				})
				c := r.dial()
				c.send(frame(0, 1, ""))
				tt.end(t, c, r)
				r.allReturned()
				eventually(t, "both released", func() bool { return releases.Load() >= 2 })
				if n := releases.Load(); n != 2 {
					t.Errorf("2 ranges were released %d times", n)
				}
			})
		}
	}
}

func TestRangesOfAnswersInLineAreReleasedWhenTheConnectionDies(t *testing.T) {
	f, _ := segment(t, vfs.OS{}, t.TempDir(), 100)
	var releases atomic.Int32
	p := newParker()
	r := start(t, p.handle)
	c := r.dial()
	c.send(frame(keyPipelined, 1, ""), frame(keyPipelined, 2, ""), frame(keyPipelined, 3, ""))
	first, second, third := <-p.parked, <-p.parked, <-p.parked
	second.Complete(respond(second, "", counted(f, 0, 100, &releases)))
	ok(t, c.Close())
	eventually(t, "connection gone", func() bool { return r.admission.count() == 0 })
	if n := releases.Load(); n != 1 {
		t.Errorf("the answer in line was released %d times", n)
	}
	if r.memory.inUse() == 0 {
		t.Error("the bodies of parked requests were taken away")
	}
	first.Complete(respond(first, "", counted(f, 0, 100, &releases)))
	third.Complete(respond(third, "", counted(f, 0, 100, &releases)))
	if n := releases.Load(); n != 3 {
		t.Errorf("3 ranges were released %d times", n)
	}
	r.allReturned()
}

func TestReadRangeWantsAllThatWasPromised(t *testing.T) {
	f, text := segment(t, vfs.NewMem(), "/", 100)
	b := make([]byte, 64)
	if n, err := readRange(vfs.Range{File: f, Offset: 90, Length: 10}, b); n != 10 || err != nil || string(b[:n]) != text[90:] {
		t.Errorf("at the end: %d, %v", n, err)
	}
	if _, err := readRange(vfs.Range{File: f, Offset: 100, Length: 1}, b); !errors.Is(err, errFile) {
		t.Errorf("beyond the end: %v", err)
	}
}

func TestSmallAnswersLeaveTogetherLargeOnesAtOnce(t *testing.T) {
	var out outbound
	for !out.full() {
		out.add([]api.Part{{Bytes: []byte("small")}})
	}
	if len(out.answers) != answersMax {
		t.Errorf("%d small answers are collected", len(out.answers))
	}
	pieces, more := out.gather(nil)
	if len(pieces) != answersMax || more {
		t.Errorf("they are %d pieces, more: %v", len(pieces), more)
	}
	out.advance(out.size)
	out.add([]api.Part{{Bytes: []byte(strings.Repeat("x", answerBytesMax))}})
	if !out.full() {
		t.Error("a large answer waits")
	}
	out.advance(out.size)
	f, _ := segment(t, vfs.NewMem(), "/", 10)
	out.add([]api.Part{{Bytes: []byte("x")}, {Range: vfs.Range{File: f, Length: 1}}})
	if !out.full() {
		t.Error("an answer with a file waits")
	}
	if pieces, more = out.gather(nil); len(pieces) != 1 || !more {
		t.Errorf("%d pieces before the file, more: %v", len(pieces), more)
	}
}

// Only what lies in memory is what others wait for.
func TestMemoryIsToldFromFiles(t *testing.T) {
	f, _ := segment(t, vfs.OS{}, t.TempDir(), 4000)
	mixed := scattered{pieces{text: strings.Repeat("x", 4000)}, f}
	for _, tt := range []struct {
		what     string
		file     vfs.File
		from, to int64
		want     bool
	}{
		{"a file", f, 0, 4000, false},
		{"memory", mixed.pieces, 0, 4000, true},
		{"both", mixed, 1000, 2001, true},
		{"the part in the file", mixed, 1000, 2000, false},
	} {
		if got := inMemory(vfs.Range{File: tt.file, Offset: tt.from, Length: tt.to - tt.from}); got != tt.want {
			t.Errorf("%s: %v", tt.what, got)
		}
	}
}
