package log

import (
	"fmt"

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
