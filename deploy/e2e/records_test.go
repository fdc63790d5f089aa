package e2e

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var codecs = []string{"none", "gzip", "snappy", "lz4", "zstd"}

// readyMax is what `make run` may take from the start of the program to an answer.
const readyMax = 300 * time.Millisecond

// TestReady is not parallel to other tests: it measures. The best of some tries counts, since the machine may be busy.
func TestReady(t *testing.T) {
	needTools(t)
	if *reference {
		t.Skip("measures Tidemark")
	}
	var took []time.Duration
	for range 5 {
		b := newBroker(t)
		took = append(took, b.start(t).Round(100*time.Microsecond))
		b.stop(t)
	}
	fmt.Fprintf(os.Stdout, "e2e: ready in %v: from exec to an answer to Metadata\n", took)
	check(t, slices.Min(took) < readyMax, "ready in %v, want less than %v", took, readyMax)
}

const linesMany = 100_000

func TestAFileComesBackUnchanged(t *testing.T) {
	needTools(t)
	t.Parallel()
	s := newScenario(t)
	s.startBroker()
	sent := manyLines()
	file := filepath.Join(s.tmp, "lines")
	if err := os.WriteFile(file, sent, 0o600); err != nil {
		t.Fatal(err)
	}

	t.Run("console", func(t *testing.T) {
		printed := s.run([]string{
			"kafka-console-producer --topic console < lines",
			fmt.Sprintf("kafka-console-consumer --topic console --from-beginning --max-messages %d > received", linesMany),
		})
		received, err := os.ReadFile(filepath.Join(s.tmp, "received"))
		if err != nil {
			t.Fatal(err)
		}
		check(t, bytes.Equal(received, sent), "%d bytes were sent, others came back (%d bytes): %q", len(sent), len(received), printed)
	})
	for _, codec := range codecs {
		t.Run("kcat "+codec, func(t *testing.T) {
			topic := "kcat-" + codec
			kcat(t, nil, "-P", "-b", s.broker.address, "-t", topic, "-z", codec, "-l", file)
			received := kcat(t, nil, "-C", "-q", "-b", s.broker.address, "-t", topic, "-o", "beginning", "-e")
			check(t, bytes.Equal(received, sent), "%d bytes were sent, others came back (%d bytes)", len(sent), len(received))
		})
	}
}

// manyLines is a text of lines that differ in length, not all of them ASCII.
func manyLines() []byte {
	var text bytes.Buffer
	for i := range linesMany {
		fmt.Fprintf(&text, "line %d: naïve façade №%d%s\n", i, i*i, strings.Repeat(" 雪", i%17))
	}
	return text.Bytes()
}

// randomLines is a text of lines of 1 KiB that every codec makes smaller by about a half.
func randomLines(seed byte, n int) []byte {
	random := rand.NewChaCha8([32]byte{seed})
	var text bytes.Buffer
	bits := make([]byte, 384)
	for range n {
		_, _ = random.Read(bits) // can't fail
		half := base64.StdEncoding.EncodeToString(bits)
		text.WriteString(half + half[1:] + "\n")
	}
	return text.Bytes()
}

func kcat(t *testing.T, stdin []byte, args ...string) []byte {
	t.Helper()
	var stdout, stderr bytes.Buffer
	process := exec.CommandContext(t.Context(), "kcat", args...)
	process.Stdin, process.Stdout, process.Stderr = bytes.NewReader(stdin), &stdout, &stderr
	if err := process.Run(); err != nil {
		t.Fatalf("kcat %v: %v\n%s", args, err, stderr.Bytes())
	}
	return stdout.Bytes()
}
