package log

import (
	"errors"
	"fmt"
	"io"
	"path"
	"slices"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// damage is a range of a segment in which no sound batch is. It answers ErrStorage and is never cut.
type damage struct {
	First    wire.Offset // first offset that is lost
	Next     wire.Offset // first one that is not
	Position int64       // in the segment's file
	End      int64
}

// damageLine is a line of the file that keeps them.
type damageLine struct {
	base wire.Offset // of the segment
	damage
}

func formatDamage(ranges []damageLine) []byte {
	b := fmt.Appendf(nil, "0\n%d\n", len(ranges))
	for _, d := range ranges {
		b = fmt.Appendf(b, "%d %d %d %d %d\n", d.base, d.First, d.Next, d.Position, d.End)
	}
	return b
}

// parseDamage reads the damaged ranges of a log by the base offset of their segments.
func parseDamage(data []byte) (map[wire.Offset][]damage, error) {
	rows, err := checkpointLines(data, 5)
	if err != nil {
		return nil, err
	}
	ranges := map[wire.Offset][]damage{}
	for _, row := range rows {
		var n [5]int64
		for i := range n {
			if n[i], err = parseNumber(row[i], 64); err != nil {
				return nil, err
			}
		}
		base := wire.Offset(n[0])
		d := damage{First: wire.Offset(n[1]), Next: wire.Offset(n[2]), Position: n[3], End: n[4]}
		if d.First < base || d.Next < d.First || d.Position < 0 || d.End <= d.Position {
			return nil, fmt.Errorf("%w: damage %+v in segment %d", errCheckpoint, d, base)
		}
		ranges[base] = append(ranges[base], d)
	}
	return ranges, nil
}

// damage steps over the unsound batch at the scanner's position, which should begin at first, to the next sound one or
// the end of the segment, whose offsets end at limit.
func (s *scanner) damage(first, limit wire.Offset) (damage, error) {
	d := damage{First: first, Next: limit, Position: s.pos}
	if err := s.resync(first, limit); err != nil && !errors.Is(err, io.EOF) {
		return d, err
	}
	if d.End = s.pos; d.End == s.end {
		return d, nil
	}
	header, err := s.window(record.HeaderSize)
	if err == nil {
		d.Next = record.Batch(header).BaseOffset()
	}
	return d, err
}

// noteDamage adds a damaged range to a segment's.
func (l *Log) noteDamage(s *segment, d damage) {
	l.env.logger.Error("damaged range", "dir", l.dir, "offset", int64(d.First), "next", int64(d.Next), "position", d.Position, "end", d.End)
	list := append(slices.Clone(s.damages()), d)
	slices.SortFunc(list, func(a, b damage) int { return int(a.Position - b.Position) })
	s.damaged.Store(&list)
}

// damageAt is the damaged range that position lies in.
func (s *segment) damageAt(position int64) (damage, bool) {
	for _, d := range s.damages() {
		if d.Position <= position && position < d.End {
			return d, true
		}
	}
	return damage{}, false
}

// writeDamage keeps the damaged ranges over restarts.
func (l *Log) writeDamage(segments []*segment) error {
	var ranges []damageLine
	for _, s := range segments {
		for _, d := range s.damages() {
			ranges = append(ranges, damageLine{s.base, d})
		}
	}
	name := path.Join(l.dir, damageFile)
	if len(ranges) == 0 {
		return removeFile(l.env.fs, name)
	}
	return writeFile(l.env.fs, name, formatDamage(ranges))
}
