package main

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// position is a place in a partition as people write it.
type position struct {
	kind   positionKind
	offset int64 // atOffset
	milli  int64 // atTime
}

type positionKind int8

const (
	atStart positionKind = iota
	atEnd
	atOffset
	atTime
)

const positionHelp = "start, end, an offset, or @ with a time: milliseconds, 2026-01-31T08:00:00Z, or an age as in @-2h"

const momentHelp = "milliseconds, 2026-01-31T08:00:00Z, or an age as in -2h"

// parsePosition reads what positionHelp describes.
func parsePosition(text string, now time.Time) (position, error) {
	switch text {
	case "start":
		return position{kind: atStart}, nil
	case "end":
		return position{kind: atEnd}, nil
	}
	if moment, ok := strings.CutPrefix(text, "@"); ok {
		milli, err := parseMoment(moment, now)
		return position{kind: atTime, milli: milli}, err
	}
	offset, err := strconv.ParseInt(text, 10, 64)
	if err != nil || offset < 0 {
		return position{}, mistake("%q is not a position: %s", text, positionHelp)
	}
	return position{kind: atOffset, offset: offset}, nil
}

// parseMoment reads what momentHelp describes. An age without its minus would be a time to come, and before that lies everything.
func parseMoment(text string, now time.Time) (int64, error) {
	if milli, err := strconv.ParseInt(text, 10, 64); err == nil && milli >= 0 {
		return milli, nil
	}
	if age, err := time.ParseDuration(text); err == nil {
		if age > 0 {
			return 0, mistake("%q lies in the future: an age is written -%s, as a position @-%[2]s", text, strings.TrimPrefix(text, "+"))
		}
		return now.Add(age).UnixMilli(), nil
	}
	for _, layout := range []string{time.RFC3339, time.DateTime, time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UnixMilli(), nil
		}
	}
	return 0, mistake("%q is not a time: %s", text, momentHelp)
}

// consumeOffset is the position for a consumer.
func (p position) consumeOffset() kgo.Offset {
	switch p.kind {
	case atEnd:
		return kgo.NewOffset().AtEnd()
	case atOffset:
		return kgo.NewOffset().At(p.offset)
	case atTime:
		return kgo.NewOffset().AfterMilli(p.milli)
	default:
		return kgo.NewOffset().AtStart()
	}
}

// resolve finds the offset of the position in every partition of the topics. After the last record a time is the end. Partitions that
// nobody answers for have an error, as in listing.
func (p position) resolve(ctx context.Context, admin *kadm.Client, topics ...string) (kadm.ListedOffsets, error) {
	switch p.kind {
	case atStart:
		return listing(admin.ListStartOffsets(ctx, topics...))
	case atTime:
		return listing(admin.ListOffsetsAfterMilli(ctx, p.milli, topics...))
	}
	listed, err := listing(admin.ListEndOffsets(ctx, topics...))
	if p.kind == atOffset {
		listed.Each(func(o kadm.ListedOffset) {
			o.Offset = p.offset
			listed[o.Topic][o.Partition] = o
		})
	}
	return listed, err
}
