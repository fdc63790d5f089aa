package bucket

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// section is a body in a file.
type section struct {
	*io.SectionReader
	file   *os.File
	offset int64
}

func (s section) File() (fd uintptr, offset int64, ok bool) { return s.file.Fd(), s.offset, true }

// A transport may still read when the put has returned, and the descriptor by then be another file's.
func TestAFileOnItsWayOutlivesTheDescriptorItCameBy(t *testing.T) {
	name := filepath.Join(t.TempDir(), "segment")
	if err := os.WriteFile(name, []byte("before, what is sent, behind"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	body, ok := openBody(section{io.NewSectionReader(file, 8, 12), file, 8})
	if !ok {
		t.Skip("this system can't open a descriptor anew")
	}
	defer body.Close()
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	var sent strings.Builder
	if _, err := io.Copy(&sent, body); err != nil || sent.String() != "what is sent" {
		t.Errorf("sent %q, %v", sent.String(), err)
	}
}
