package log

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// Files in a log directory that say something of each partition in it.
const (
	recoveryPointFile = "recovery-point-offset-checkpoint"
	highWatermarkFile = "replication-offset-checkpoint"
	logStartFile      = "log-start-offset-checkpoint"
)

// errCheckpoint says that a checkpoint file is not what its format asks for.
var errCheckpoint = errors.New("checkpoint file is damaged")

// checkpointLines splits a checkpoint of Kafka's text format, version 0: version, count, a line an entry; each line has
// so many fields.
func checkpointLines(data []byte, fields int) ([][]string, error) {
	lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	if len(lines) < 2 || lines[0] != "0" {
		return nil, fmt.Errorf("%w: no version 0", errCheckpoint)
	}
	count, err := strconv.Atoi(lines[1])
	if err != nil || count != len(lines)-2 {
		return nil, fmt.Errorf("%w: %d lines for a count of %q", errCheckpoint, len(lines)-2, lines[1])
	}
	rows := make([][]string, count)
	for i, line := range lines[2:] {
		rows[i] = strings.Fields(line)
		if len(rows[i]) != fields {
			return nil, fmt.Errorf("%w: line %q", errCheckpoint, line)
		}
	}
	return rows, nil
}

func parseNumber(s string, bits int) (int64, error) {
	n, err := strconv.ParseInt(s, 10, bits)
	if err != nil {
		return 0, fmt.Errorf("%w: number %q", errCheckpoint, s)
	}
	return n, nil
}

// ParseOffsetCheckpoint reads recovery-point-, replication- or log-start-offset-checkpoint.
func ParseOffsetCheckpoint(data []byte) (map[wire.TopicPartition]wire.Offset, error) {
	rows, err := checkpointLines(data, 3)
	if err != nil {
		return nil, err
	}
	offsets := make(map[wire.TopicPartition]wire.Offset, len(rows))
	for _, row := range rows {
		partition, err := parseNumber(row[1], 32)
		if err != nil {
			return nil, err
		}
		offset, err := parseNumber(row[2], 64)
		if err != nil {
			return nil, err
		}
		offsets[wire.TopicPartition{Topic: row[0], Partition: int32(partition)}] = wire.Offset(offset)
	}
	return offsets, nil
}

func formatOffsetCheckpoint(offsets map[wire.TopicPartition]wire.Offset) []byte {
	b := fmt.Appendf(nil, "0\n%d\n", len(offsets))
	for _, tp := range slices.SortedFunc(maps.Keys(offsets), comparePartitions) {
		b = fmt.Appendf(b, "%s %d %d\n", tp.Topic, tp.Partition, offsets[tp])
	}
	return b
}

func comparePartitions(a, b wire.TopicPartition) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}

// ParseEpochCheckpoint reads leader-epoch-checkpoint: epochs and start offsets, both rising.
func ParseEpochCheckpoint(data []byte) ([]EpochEntry, error) {
	rows, err := checkpointLines(data, 2)
	if err != nil {
		return nil, err
	}
	entries := make([]EpochEntry, 0, len(rows))
	for _, row := range rows {
		epoch, err := parseNumber(row[0], 32)
		if err != nil {
			return nil, err
		}
		start, err := parseNumber(row[1], 64)
		if err != nil {
			return nil, err
		}
		e := EpochEntry{Epoch: wire.LeaderEpoch(epoch), Start: wire.Offset(start)}
		if n := len(entries); n > 0 && (e.Epoch <= entries[n-1].Epoch || e.Start < entries[n-1].Start) || epoch < 0 || start < 0 {
			return nil, fmt.Errorf("%w: epoch %d at %d out of order", errCheckpoint, e.Epoch, e.Start)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

func formatEpochCheckpoint(entries []EpochEntry) []byte {
	b := fmt.Appendf(nil, "0\n%d\n", len(entries))
	for _, e := range entries {
		b = fmt.Appendf(b, "%d %d\n", e.Epoch, e.Start)
	}
	return b
}

// readCheckpoint reads a checkpoint that may be missing.
func readCheckpoint[T any](fsys vfs.FS, name string, parse func([]byte) (T, error)) (T, error) {
	var none T
	data, err := readFile(fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return none, nil
	}
	if err != nil {
		return none, err
	}
	return parse(data)
}

var errPartitionMetadata = errors.New("partition.metadata has no topic id")

// parsePartitionMetadata reads partition.metadata: the topic id.
func parsePartitionMetadata(data []byte) (wire.TopicID, error) {
	for line := range strings.Lines(string(data)) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if ok && key == "topic_id" {
			id, err := wire.ParseTopicID(value)
			if err != nil {
				return id, fmt.Errorf("%w: %w", errPartitionMetadata, err)
			}
			return id, nil
		}
	}
	return wire.TopicID{}, errPartitionMetadata
}

func formatPartitionMetadata(id wire.TopicID) []byte {
	return fmt.Appendf(nil, "version: 0\ntopic_id: %s", id)
}
