package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// fine are the lines that kafka-dump-log prints about files with nothing wrong. It takes the first record of each file but
// the first as a hole; a real one names an offset before it.
var fine = regexp.MustCompile(`^(` + strings.Join([]string{
	`Dumping \S+`,
	`Log starting offset: \d+`,
	`baseOffset: \d+ lastOffset: \d+ count: \d+ .* isvalid: true`,
	`\| offset: \d+ CreateTime: \d+ keySize: -?\d+ valueSize: \d+ sequence: -?\d+ headerKeys: \[\].*`,
	`offset: \d+ position: \d+`,
	`timestamp: \d+ offset: \d+`,
	`producerId: \d+ producerEpoch: \d+ .*`,
	`\S+ passed sanity check\.`,
	`Non-consecutive offsets in \S+`,
	`  -1 is followed by \d+`,
}, "|") + `)$`)

const (
	linesPerCodec = 8000 // of 1 KiB each
	segmentsMin   = 20
)

// TestDumpLogFindsNothingWrong writes a log of many small segments with all codecs, kills the broker in mid-append, and lets
// Kafka's own tool check the files.
func TestDumpLogFindsNothingWrong(t *testing.T) {
	needTools(t)
	t.Parallel()
	s := newScenario(t)
	s.startBroker()
	s.run([]string{"kafka-topics --create --topic mixed --config segment.bytes=1048576"})
	produce := []string{"-P", "-b", s.broker.address, "-t", "mixed", "-X", "enable.idempotence=true", "-X", "batch.num.messages=40"}
	for i, codec := range codecs {
		kcat(t, randomLines(byte(i), linesPerCodec), slices.Concat(produce, []string{"-z", codec})...)
	}
	s.run([]string{"kafka-console-consumer --topic mixed --group readers --from-beginning --max-messages 100 > some"})
	sent := len(codecs) * linesPerCodec

	s.broker.stop(t)
	dumped := dumpAll(t, s)
	check(t, dumped.segments >= segmentsMin, "%d segments, want %d or more", dumped.segments, segmentsMin)
	check(t, dumped.records == sent, "%d records in the log, %d were sent", dumped.records, sent)
	check(t, slices.Equal(dumped.codecs(), slices.Sorted(slices.Values(codecs))), "the batches have the codecs %v", dumped.codecs())
	fmt.Fprintf(os.Stdout, "e2e: kafka-dump-log read %d segments, %d records, codecs %v\n", dumped.segments, dumped.records, dumped.codecs())
	offsetsDecode(t, s)

	s.broker.start(t)
	killWhileProducing(t, s, slices.Concat(produce, []string{"-z", "lz4"}))
	s.broker.start(t)
	s.broker.stop(t)
	recovered := dumpAll(t, s)
	check(t, recovered.records >= sent, "%d records after recovery, %d were there before", recovered.records, sent)
	fmt.Fprintf(os.Stdout, "e2e: after kill -9 and recovery: %d segments, %d records\n", recovered.segments, recovered.records)
	offsetsDecode(t, s)
	s.broker.start(t)
}

// dump is what kafka-dump-log tells of a partition.
type dump struct {
	segments, records int
	compression       map[string]bool
}

func (d dump) codecs() []string {
	var names []string
	for name := range d.compression {
		names = append(names, strings.ToLower(name))
	}
	slices.Sort(names)
	return names
}

var compressType = regexp.MustCompile(` compresscodec: (\w+) `)

// dumpAll checks the files of the partition in each way that the tool has.
func dumpAll(t *testing.T, s *scenario) dump {
	t.Helper()
	dir := filepath.Join(s.broker.folder, "mixed-0")
	d := dump{compression: map[string]bool{}}
	for _, mode := range []struct{ name, pattern, options string }{
		{"records", "*.log", "--deep-iteration"},
		{"indexes against the log", "*.*index", "--verify-index-only"},
		{"sanity of the indexes", "*.*index", "--index-sanity-check"},
		{"entries of the indexes", "*.*index", ""},
		{"producers", "*.snapshot", ""},
	} {
		files, err := filepath.Glob(filepath.Join(dir, mode.pattern))
		if err != nil {
			t.Fatal(err)
		}
		check(t, len(files) > 0, "%s: no files %s", mode.name, mode.pattern)
		var wrong []string
		for _, line := range s.runRaw([]string{"kafka-dump-log " + mode.options + " --files " + strings.Join(files, ",")}) {
			line = strings.TrimSuffix(line, "\n")
			if !fine.MatchString(line) && !rightlyEmpty(line) {
				wrong = append(wrong, line)
			}
			if codec := compressType.FindStringSubmatch(line); codec != nil {
				d.compression[codec[1]] = true
			}
			if strings.HasPrefix(line, "| offset: ") {
				d.records++
			}
		}
		check(t, len(wrong) == 0, "%s: %d findings, such as %q", mode.name, len(wrong), wrong[:min(len(wrong), 5)])
		if mode.pattern == "*.log" {
			d.segments = len(files)
		}
	}
	return d
}

var emptyIndex = regexp.MustCompile(`^(.*)\.(?:time)?index is empty\.$`)

// rightlyEmpty tells whether a line is of the index of a segment with a batch at most, which has no entry yet: the kill may have come as
// soon as the segment was begun.
func rightlyEmpty(line string) bool {
	index := emptyIndex.FindStringSubmatch(line)
	if index == nil {
		return false
	}
	const batch = 64 << 10
	info, err := os.Stat(index[1] + ".log")
	return err == nil && info.Size() <= batch
}

// offsetsDecode looks for the group's commit in __consumer_offsets.
func offsetsDecode(t *testing.T, s *scenario) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(s.broker.folder, "__consumer_offsets-*", "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(s.runRaw([]string{"kafka-dump-log --offsets-decoder --files " + strings.Join(files, ",")}), "")
	for _, want := range []string{
		`key: {"type":"1","data":{"group":"readers","topic":"mixed","partition":0}}`,
		`key: {"type":"2","data":{"group":"readers"}}`,
		`"offset":100,`,
	} {
		check(t, strings.Contains(text, want), "the records of __consumer_offsets lack %s:\n%s", want, text[:min(len(text), 2000)])
	}
}

// killWhileProducing ends the broker by kill -9 while a producer keeps appending.
func killWhileProducing(t *testing.T, s *scenario, args []string) {
	t.Helper()
	process := exec.CommandContext(t.Context(), "kcat", args...)
	process.Stdin = &endless{text: randomLines(255, 1000)}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(s.broker.folder, "mixed-0")
	const grown = 4 << 20
	before := folderSize(t, dir)
	pause := time.NewTicker(5 * time.Millisecond)
	defer pause.Stop()
	for deadline := time.Now().Add(untilMax); folderSize(t, dir) < before+grown; <-pause.C {
		if time.Now().After(deadline) {
			t.Fatalf("the log did not grow by %d bytes", grown)
		}
	}
	s.broker.kill(t)
	if err := process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = process.Wait() // says that it was killed
}

// endless repeats a text.
type endless struct {
	text []byte
	at   bytes.Reader
}

func (e *endless) Read(p []byte) (int, error) {
	if e.at.Len() == 0 {
		e.at.Reset(e.text)
	}
	return e.at.Read(p)
}

func folderSize(t *testing.T, dir string) int64 {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var size int64
	for _, e := range entries {
		if info, err := e.Info(); err == nil { // it may have gone
			size += info.Size()
		}
	}
	return size
}
