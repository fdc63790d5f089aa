package sim

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"log/slog"
	"time"
)

// trace is the text of a run. All of it goes into the hash; the newest lines are kept for the report of a failure.
type trace struct {
	now  func() time.Time
	hash hash.Hash
	out  io.Writer // nil: nobody reads along
	line bytes.Buffer
	tail [tailLines]string // a ring; the disk's lines are left out
	next int
}

// tailLines is what a failure shows: about a second of a busy run.
const tailLines = 60

func newTrace(now func() time.Time, out io.Writer) *trace {
	return &trace{now: now, hash: sha256.New(), out: out}
}

// diskLines is the subject of lines that are too many to be shown.
const diskLines = "disk"

// add writes a line.
func (t *trace) add(subject, format string, args ...any) {
	t.line.Reset()
	fmt.Fprintf(&t.line, "%12.6f %-10s ", t.now().Sub(epoch).Seconds(), subject)
	fmt.Fprintf(&t.line, format, args...)
	t.line.WriteByte('\n')
	t.hash.Write(t.line.Bytes())
	if t.out != nil {
		t.out.Write(t.line.Bytes()) //nolint:errcheck // a trace that can't be written harms nothing
	}
	if subject != diskLines {
		t.tail[t.next%tailLines] = t.line.String()
		t.next++
	}
}

// sum is the hash of all lines so far.
func (t *trace) sum() string { return hex.EncodeToString(t.hash.Sum(nil)[:16]) }

// end gives the last lines, oldest first.
func (t *trace) end() []string {
	var lines []string
	for i := max(0, t.next-tailLines); i < t.next; i++ {
		lines = append(lines, t.tail[i%tailLines])
	}
	return lines
}

// logHandler writes the engine's log into the trace.
type logHandler struct {
	trace *trace
	attrs string
}

// Enabled implements slog.Handler.
func (h logHandler) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

// Handle implements slog.Handler.
func (h logHandler) Handle(_ context.Context, r slog.Record) error {
	attrs := h.attrs
	r.Attrs(func(a slog.Attr) bool {
		attrs += " " + a.String()
		return true
	})
	h.trace.add("log", "%s %s%s", r.Level, r.Message, attrs)
	return nil
}

// WithAttrs implements slog.Handler.
func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		h.attrs += " " + a.String()
	}
	return h
}

// WithGroup implements slog.Handler.
func (h logHandler) WithGroup(string) slog.Handler { return h }
