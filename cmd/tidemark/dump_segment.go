package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"strings"
	"time"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// unfoldedBytesMax is the largest size to which a batch is decompressed.
const unfoldedBytesMax = 1 << 30

// placed is a batch in a segment file.
type placed struct {
	record.Batch
	position int64
}

// batchesOf walks the batches of a segment file. The last one it yields has an error where the file is damaged or torn.
// The batch is only valid until the next.
func batchesOf(path string) iter.Seq2[placed, error] {
	return func(yield func(placed, error) bool) {
		f, err := os.Open(path)
		if err != nil {
			yield(placed{}, err)
			return
		}
		defer f.Close() // it was only read
		info, err := f.Stat()
		if err != nil {
			yield(placed{}, err)
			return
		}
		var buffer []byte
		for at := int64(0); at < info.Size(); {
			batch, err := readBatch(f, at, info.Size(), &buffer)
			if !yield(placed{batch, at}, err) || err != nil {
				return
			}
			at += int64(len(batch))
		}
	}
}

func readBatch(f io.ReaderAt, at, size int64, buffer *[]byte) (record.Batch, error) {
	prefix := make([]byte, record.SizePrefix)
	if _, err := f.ReadAt(prefix, at); err != nil {
		return nil, torn(at, err)
	}
	length, err := record.SizeOf(prefix)
	if err != nil {
		return nil, fmt.Errorf("position %d: %w", at, err)
	}
	if at+int64(length) > size {
		return nil, fmt.Errorf("position %d: a batch of %d bytes, but the file ends after %d", at, length, size-at)
	}
	if cap(*buffer) < length {
		*buffer = make([]byte, length)
	}
	batch := record.Batch((*buffer)[:length])
	if _, err := f.ReadAt(batch, at); err != nil {
		return nil, torn(at, err)
	}
	if err := batch.Check(); err != nil {
		return batch, fmt.Errorf("position %d: %w", at, err)
	}
	return batch, nil
}

func torn(at int64, err error) error {
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("position %d: the file ends inside a batch", at)
	}
	return fmt.Errorf("position %d: %w", at, err)
}

// batchPlace is what the indexes say of a batch.
type batchPlace struct {
	position     int64
	last         wire.Offset
	maxTimestamp int64
}

func placesOf(path string) ([]batchPlace, error) {
	var places []batchPlace
	for b, err := range batchesOf(path) {
		if err != nil {
			return places, err
		}
		places = append(places, batchPlace{b.position, b.LastOffset(), b.MaxTimestamp()})
	}
	return places, nil
}

// batchView is one batch.
type batchView struct {
	Position      int64              `json:"position"`
	Size          int                `json:"size"`
	BaseOffset    wire.Offset        `json:"base_offset"`
	LastOffset    wire.Offset        `json:"last_offset"`
	Count         int32              `json:"count"`
	LeaderEpoch   wire.LeaderEpoch   `json:"leader_epoch"`
	Codec         string             `json:"codec"`
	TimestampType string             `json:"timestamp_type"`
	BaseTimestamp int64              `json:"base_timestamp"`
	MaxTimestamp  int64              `json:"max_timestamp"`
	ProducerID    wire.ProducerID    `json:"producer_id"`
	ProducerEpoch wire.ProducerEpoch `json:"producer_epoch"`
	BaseSequence  int32              `json:"base_sequence"`
	Transactional bool               `json:"transactional,omitempty"`
	Control       bool               `json:"control,omitempty"`
	CRC           uint32             `json:"crc"`
	Records       []recordDump       `json:"records,omitempty"`
}

func newBatchView(b placed) batchView {
	v := batchView{
		Position: b.position, Size: len(b.Batch), BaseOffset: b.BaseOffset(), LastOffset: b.LastOffset(), Count: b.Count(),
		LeaderEpoch: b.LeaderEpoch(), Codec: b.Codec().String(), TimestampType: "CreateTime", BaseTimestamp: b.BaseTimestamp(),
		MaxTimestamp: b.MaxTimestamp(), ProducerID: b.ProducerID(), ProducerEpoch: b.ProducerEpoch(), BaseSequence: b.BaseSequence(),
		Transactional: b.IsTransactional(), Control: b.IsControl(), CRC: b.CRC(),
	}
	if b.TimestampType() == record.LogAppendTime {
		v.TimestampType = "LogAppendTime"
	}
	return v
}

func (v batchView) write(p *page) {
	fmt.Fprintf(p.out, "offset %d-%d  position %d  size %d  count %d  epoch %d  codec %s  %s %s", v.BaseOffset, v.LastOffset, v.Position, v.Size,
		v.Count, v.LeaderEpoch, v.Codec, v.TimestampType, timeText(v.MaxTimestamp))
	if v.ProducerID >= 0 {
		fmt.Fprintf(p.out, "  producer %d epoch %d sequence %d", v.ProducerID, v.ProducerEpoch, v.BaseSequence)
	}
	if v.Transactional {
		fmt.Fprint(p.out, "  transactional")
	}
	if v.Control {
		fmt.Fprint(p.out, "  control")
	}
	fmt.Fprintln(p.out)
	for _, r := range v.Records {
		fmt.Fprintf(p.out, "    %d  %s", r.Offset, timeText(r.Timestamp))
		if r.Control != "" {
			fmt.Fprintf(p.out, "  %s\n", r.Control)
			continue
		}
		fmt.Fprintf(p.out, "  key %s  value %s%s\n", quoted(r.Key), quoted(r.Value), r.headerText())
	}
}

// recordDump is a record of a batch.
type recordDump struct {
	Offset    wire.Offset  `json:"offset"`
	Timestamp int64        `json:"timestamp"`
	Key       *string      `json:"key"`
	Value     *string      `json:"value"`
	Headers   []headerView `json:"headers,omitempty"`
	Control   string       `json:"control,omitempty"` // what a control record says
}

func (r recordDump) headerText() string {
	if len(r.Headers) == 0 {
		return ""
	}
	var texts []string
	for _, h := range r.Headers {
		texts = append(texts, h.Key+"="+quoted(h.Value))
	}
	return "  headers " + strings.Join(texts, " ")
}

func newRecordDump(b record.Batch, r *record.Record) recordDump {
	d := recordDump{Offset: r.Offset, Timestamp: r.Timestamp, Key: text(r.Key), Value: text(r.Value)}
	for key, value := range r.Headers() {
		d.Headers = append(d.Headers, headerView{key, text(value)})
	}
	if b.IsControl() {
		if kind, err := record.ParseControlType(r.Key); err == nil {
			d.Control = kind.String()
		}
	}
	return d
}

// text copies bytes; JSON replaces what is not UTF-8.
func text(b []byte) *string {
	if b == nil {
		return nil
	}
	s := string(b)
	return &s
}

func quoted(s *string) string {
	if s == nil {
		return "null"
	}
	return fmt.Sprintf("%q", *s)
}

func timeText(milli int64) string {
	if milli < 0 {
		return "none"
	}
	return time.UnixMilli(milli).UTC().Format("2006-01-02T15:04:05.000Z")
}

// segmentEnd is the last line of a segment.
type segmentEnd struct {
	File    string `json:"file"`
	Kind    string `json:"kind"`
	Batches int    `json:"batches"`
	Records int64  `json:"records"`
	Bytes   int64  `json:"bytes"` // up to the damage, if there is one
	Error   string `json:"error,omitempty"`
}

func (s segmentEnd) write(p *page) {
	fmt.Fprintf(p.out, "batches %d  records %d  size %s\n", s.Batches, s.Records, bytesText(s.Bytes))
	if s.Error != "" {
		fmt.Fprintf(p.out, "DAMAGED: %s\n", s.Error)
	}
	fmt.Fprintln(p.out)
}

// dumpSegment prints the batches of a .log file as it reads them.
func dumpSegment(ctx context.Context, d *dumper, path string) error {
	if !d.json {
		fmt.Fprintf(d.out, "%s: segment\n", path)
	}
	end := segmentEnd{File: path, Kind: "segment"}
	next := wire.Offset(-1)
	for b, err := range batchesOf(path) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var view batchView
		if err == nil {
			if b.BaseOffset() < next {
				err = fmt.Errorf("position %d: base offset %d, but the batch before ended with %d", b.position, b.BaseOffset(), next-1)
			} else {
				view, err = d.batch(b)
			}
		}
		if unreadable := new(fs.PathError); errors.As(err, &unreadable) {
			return err
		}
		if err != nil {
			end.Error = err.Error()
			d.damaged++
			break
		}
		next = b.NextOffset()
		end.Batches++
		end.Records += int64(b.Count())
		end.Bytes += int64(len(b.Batch))
		if err := d.emit(view); err != nil {
			return err
		}
	}
	return d.emit(end)
}

// batch makes the view of a batch; its records are read even where they are not shown, so that damage in them is found.
func (d *dumper) batch(b placed) (batchView, error) {
	v := newBatchView(b)
	for r, err := range record.Records(b.Batch, unfoldedBytesMax) {
		if err != nil {
			return v, fmt.Errorf("position %d: %w", b.position, err)
		}
		if d.records {
			v.Records = append(v.Records, newRecordDump(b.Batch, &r))
		}
	}
	return v, nil
}
