package vfs

import (
	"bytes"
	"path"
	"testing"

	"golang.org/x/sys/unix"
)

// What sendfile and splice have taken of a file stays what it was when its place is punched and written anew, also where it was read with what
// lies around it.
func TestWhatIsOnItsWayStaysWhatItWasWhenItsPlaceIsPunched(t *testing.T) {
	const size, step, part = 16 << 20, 256 << 10, 64 << 10
	f, err := OS{}.Create(path.Join(t.TempDir(), "f"))
	must(t, err)
	defer f.Close()
	fd, _ := f.Fd()
	content := make([]byte, size)
	for i := range content {
		content[i] = byte(i>>12) | 1
	}
	_, err = f.WriteAt(content, 0)
	must(t, err)
	must(t, unix.Fsync(int(fd)))
	must(t, unix.Fadvise(int(fd), 0, 0, unix.FADV_DONTNEED))
	must(t, f.ReadNoFurther())
	buf := make([]byte, part)
	for at := int64(0); at < size; at += part {
		_, err := f.ReadAt(buf, at)
		must(t, err)
	}

	pipe := make([]int, 2)
	must(t, unix.Pipe(pipe))
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	zeros := make([]byte, part)
	for at := int64(0); at < size; at += step {
		from := at
		n, err := unix.Splice(int(fd), &from, pipe[1], nil, part, 0)
		must(t, err)
		must(t, f.PunchHole(at, at+part))
		_, err = f.WriteAt(zeros, at)
		must(t, err)
		m, err := unix.Read(pipe[0], buf[:n])
		must(t, err)
		if int64(m) != n || !bytes.Equal(buf[:m], content[at:at+int64(m)]) {
			t.Fatalf("at %d: what was on its way has become something else", at)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
