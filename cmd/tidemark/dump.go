package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/wire"
)

func logCommand(a *app) *cobra.Command {
	return parent("log", "Read a broker's files", logDumpCommand(a))
}

func logDumpCommand(a *app) *cobra.Command {
	d := dumper{}
	c := &cobra.Command{
		Use:   "dump PATH...",
		Short: "Print and check segments, indexes, snapshots and checkpoints",
		Long: "Print and check the files of a log directory, a partition's folder or single files: segments (.log), indexes (.index, .timeindex, " +
			".txnindex), producer snapshots, checkpoints, meta.properties. Indexes are compared with the segment beside them.\n\n" +
			"With --json each batch and each file is one line. The files are only read; those of a running broker may be half-written at their end.",
		Example: "  tidemark log dump data/orders-0\n  tidemark log dump data/orders-0/00000000000000000000.log --records",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, paths []string) error {
			return buffered(cmd, func(out *bufio.Writer) error {
				d.out, d.json = out, a.json
				for _, path := range paths {
					if err := d.dump(cmd.Context(), path); err != nil {
						return err
					}
				}
				if d.damaged > 0 {
					return errDamaged
				}
				return nil
			})
		},
	}
	c.Flags().BoolVarP(&d.records, "records", "r", false, "print the records of each batch")
	return c
}

var errDamaged = errors.New("there is damage; it is marked above")

// dumper prints files.
type dumper struct {
	out     io.Writer
	json    bool
	records bool
	damaged int
}

// dump prints a file, or what a folder holds. A folder of partition folders is gone through.
func (d *dumper) dump(ctx context.Context, path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return d.file(ctx, path)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		below := filepath.Join(path, e.Name())
		switch {
		case e.IsDir():
			err = d.dump(ctx, below)
		case formatOf(below) != nil:
			err = d.file(ctx, below)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// format prints a file of one kind.
type format func(ctx context.Context, d *dumper, path string) error

// formatOf finds the format by the file's name, nil for none.
func formatOf(path string) format {
	name := filepath.Base(path)
	switch {
	case name == "leader-epoch-checkpoint":
		return whole("leader epochs", dumpEpochs)
	case strings.HasSuffix(name, "-offset-checkpoint"):
		return whole("offset checkpoint", dumpOffsets)
	case name == "meta.properties":
		return whole("log directory", dumpMeta)
	}
	switch filepath.Ext(name) {
	case ".log":
		return dumpSegment
	case ".index":
		return whole("offset index", dumpOffsetIndex)
	case ".timeindex":
		return whole("time index", dumpTimeIndex)
	case ".txnindex":
		return whole("transaction index", dumpTransactionIndex)
	case ".snapshot":
		return whole("producer snapshot", dumpSnapshot)
	}
	return nil
}

func (d *dumper) file(ctx context.Context, path string) error {
	dump := formatOf(path)
	if dump == nil {
		return fmt.Errorf("%s: not a file of a log: its name is none of *.log, *.index, *.timeindex, *.txnindex, *.snapshot, *-checkpoint, meta.properties", path)
	}
	return dump(ctx, d, path)
}

// fileView is a file that was read at once.
type fileView struct {
	File  string `json:"file"`
	Kind  string `json:"kind"`
	Error string `json:"error,omitempty"` // what is wrong with it

	columns []string
	cells   [][]any
}

// MarshalJSON writes each row as an object, with the names of the columns as keys.
func (v *fileView) MarshalJSON() ([]byte, error) {
	type plain fileView // without this method
	content := make([]map[string]any, len(v.cells))
	for i, cells := range v.cells {
		content[i] = make(map[string]any, len(cells))
		for j, cell := range cells {
			content[i][strings.ToLower(strings.ReplaceAll(v.columns[j], " ", "_"))] = cell
		}
	}
	return json.Marshal(struct {
		*plain
		Content []map[string]any `json:"content"`
	}{(*plain)(v), content})
}

func (v *fileView) row(cells ...any) { v.cells = append(v.cells, cells) }

func (v *fileView) write(p *page) {
	fmt.Fprintf(p.out, "%s: %s\n", v.File, v.Kind)
	if len(v.cells) > 0 {
		p.heading(v.columns...)
		for _, cells := range v.cells {
			p.row(cells...)
		}
		p.flush()
	}
	if v.Error != "" {
		fmt.Fprintf(p.out, "DAMAGED: %s\n", v.Error)
	}
	fmt.Fprintln(p.out)
}

// whole makes a format of a function that reads a file at once. The function's error is what is wrong with the file.
func whole(kind string, read func(v *fileView, data []byte) error) format {
	return func(ctx context.Context, d *dumper, path string) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		v := &fileView{File: path, Kind: kind}
		if err := read(v, data); err != nil {
			v.Error = err.Error()
			d.damaged++
		}
		return d.emit(v)
	}
}

func (d *dumper) emit(v view) error {
	if d.json {
		encoder := json.NewEncoder(d.out)
		encoder.SetEscapeHTML(false)
		return encoder.Encode(v)
	}
	p := newPage(d.out)
	v.write(p)
	return p.end()
}

func dumpEpochs(v *fileView, data []byte) error {
	entries, err := log.ParseEpochCheckpoint(data)
	v.columns = []string{"EPOCH", "START"}
	for _, e := range entries {
		v.row(e.Epoch, e.Start)
	}
	return err
}

func dumpOffsets(v *fileView, data []byte) error {
	offsets, err := log.ParseOffsetCheckpoint(data)
	v.columns = []string{"TOPIC", "PARTITION", "OFFSET"}
	for _, tp := range slices.SortedFunc(maps.Keys(offsets), func(x, y wire.TopicPartition) int {
		return cmp.Or(cmp.Compare(x.Topic, y.Topic), cmp.Compare(x.Partition, y.Partition))
	}) {
		v.row(tp.Topic, tp.Partition, offsets[tp])
	}
	return err
}

func dumpMeta(v *fileView, data []byte) error {
	meta, err := log.ParseMeta(data)
	v.columns = []string{"CLUSTER", "INCARNATION", "BROKER", "DIRECTORY"}
	v.row(meta.ClusterID, meta.ClusterIncarnation, meta.BrokerID, meta.DirectoryID)
	return err
}

func dumpTransactionIndex(v *fileView, data []byte) error {
	aborted, err := log.DecodeTransactionIndex(data)
	v.columns = []string{"PRODUCER", "FIRST", "LAST", "LAST STABLE"}
	for _, t := range aborted {
		v.row(t.ProducerID, t.First, t.Last, t.LastStableOffset)
	}
	return err
}

func dumpSnapshot(v *fileView, data []byte) error {
	producers, err := log.DecodeProducerSnapshot(data)
	v.columns = []string{"PRODUCER", "EPOCH", "LAST SEQUENCE", "LAST OFFSET", "LAST TIME", "COORDINATOR EPOCH", "TRANSACTION FROM"}
	for _, e := range producers {
		v.row(e.ID, e.Epoch, e.LastSequence, e.LastOffset, e.LastTimestamp, e.CoordinatorEpoch, e.TxnStart)
	}
	return err
}

// An index of Kafka's is preallocated, and zero behind its last entry while its segment is written.
const (
	offsetEntryBytes = 8
	timeEntryBytes   = 12
)

func trimUnused(data []byte, entry int) []byte {
	unused := make([]byte, entry)
	for len(data) >= entry && string(data[len(data)-entry:]) == string(unused) {
		data = data[:len(data)-entry]
	}
	return data
}

func dumpOffsetIndex(v *fileView, data []byte) error {
	base, err := baseOf(v.File)
	if err != nil {
		return err
	}
	entries, err := log.DecodeOffsetIndex(trimUnused(data, offsetEntryBytes), base)
	v.columns = []string{"OFFSET", "POSITION"}
	for _, e := range entries {
		v.row(e.Offset, e.Position)
	}
	if err != nil {
		return err
	}
	return withSegment(v.File, func(batches []batchPlace) error {
		for _, e := range entries {
			i, ok := slices.BinarySearchFunc(batches, e.Position, func(b batchPlace, at int64) int { return int(b.position - at) })
			if !ok || batches[i].last != e.Offset {
				return fmt.Errorf("no batch at position %d ends with offset %d", e.Position, e.Offset)
			}
		}
		return nil
	})
}

func dumpTimeIndex(v *fileView, data []byte) error {
	base, err := baseOf(v.File)
	if err != nil {
		return err
	}
	entries, err := log.DecodeTimeIndex(trimUnused(data, timeEntryBytes), base)
	v.columns = []string{"TIMESTAMP", "OFFSET"}
	for _, e := range entries {
		v.row(e.Timestamp, e.Offset)
	}
	if err != nil {
		return err
	}
	return withSegment(v.File, func(batches []batchPlace) error {
		for _, e := range entries {
			i, ok := slices.BinarySearchFunc(batches, e.Offset, func(b batchPlace, offset wire.Offset) int { return int(b.last - offset) })
			if !ok || batches[i].maxTimestamp != e.Timestamp {
				return fmt.Errorf("no batch that ends with offset %d has timestamp %d", e.Offset, e.Timestamp)
			}
		}
		return nil
	})
}

// baseOf reads the base offset in the name of a segment's file.
func baseOf(path string) (wire.Offset, error) {
	name, _, _ := strings.Cut(filepath.Base(path), ".")
	base, err := strconv.ParseInt(name, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s does not begin with an offset", filepath.Base(path))
	}
	return wire.Offset(base), nil
}

// withSegment hands the batches of the segment beside an index to check. Without the segment there is nothing to check.
func withSegment(index string, check func([]batchPlace) error) error {
	segment := strings.TrimSuffix(index, filepath.Ext(index)) + ".log"
	batches, err := placesOf(segment)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil && len(batches) == 0 {
		return err
	}
	return check(batches)
}
