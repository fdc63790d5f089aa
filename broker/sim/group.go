package sim

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

// groupLedger is what is known of a consumer group: the history of its commits, and how far its generations have come.
type groupLedger struct {
	c          *cluster
	name       string
	commits    []*commit // that may have taken effect, in the order in which they were sent
	former     []*commit // that a loss has undone: the bucket may bring them back
	generation int32     // the highest that a member was given its assignment in
}

// commit is an offset that a client has committed, or tried to.
type commit struct {
	serial  int
	of      *partition
	offset  int64
	sent    time.Time
	ended   time.Time // answered, or the connection broke; zero while it is on its way
	acked   bool
	durable bool // can't be lost any more
}

// group finds a group's ledger, or begins it.
func (l *ledger) group(name string) *groupLedger {
	for _, g := range l.groups {
		if g.name == name {
			return g
		}
	}
	g := &groupLedger{c: l.c, name: name}
	l.groups = append(l.groups, g)
	return g
}

// begin notes a commit that goes out.
func (g *groupLedger) begin(of *partition, offset int64) *commit {
	g.c.stats.Commits++
	m := &commit{serial: g.c.stats.Commits, of: of, offset: offset, sent: g.c.clock.now}
	g.commits = append(g.commits, m)
	return m
}

// note is what a commit carries along, so that it is known again.
func (m *commit) note() *string {
	s := strconv.Itoa(m.serial)
	return &s
}

// end notes what became of a commit. One that was refused has not taken effect; one whose connection broke may yet arrive.
func (g *groupLedger) end(m *commit, acked, refused bool) {
	m.ended, m.acked = g.c.clock.now, acked
	if !acked && !refused {
		m.ended = m.ended.Add(lateLimit)
	}
	if refused {
		g.commits = slices.DeleteFunc(g.commits, func(other *commit) bool { return other == m })
	}
}

// flushed notes that what was acknowledged so far can't be lost any more.
func (g *groupLedger) flushed() {
	for _, m := range g.commits {
		m.durable = m.durable || m.acked
	}
}

// before tells whether m took effect before other, if both did.
func (m *commit) before(other *commit) bool { return !m.ended.IsZero() && m.ended.Before(other.sent) }

// found is what a broker says of a group's offset in a partition.
type found struct {
	of     *partition
	offset int64
	note   string
}

// check holds what a broker says against the history. After a power loss the offsets may be those of a former moment, but of
// one moment: what was acknowledged before a commit that is there, is there too.
func (g *groupLedger) check(rows []found, lossy bool) error {
	visible := map[*partition]*commit{}
	for _, row := range rows {
		m, err := g.identify(row, lossy)
		if err != nil {
			return err
		}
		visible[row.of] = m
	}
	for _, acked := range g.commits {
		if !acked.acked || acked.of.topic.gone {
			continue
		}
		is := visible[acked.of]
		if is == acked || is != nil && !is.before(acked) {
			continue
		}
		if !lossy || acked.durable || g.outlived(acked, rows, visible) {
			return fmt.Errorf("group %s: commit %d of %s@%d is gone; there is %s", g.name, acked.serial, acked.of, acked.offset, is)
		}
	}
	if lossy {
		g.keepOnly(visible)
	}
	return nil
}

// identify finds the commit that put an offset there; nil for none.
func (g *groupLedger) identify(row found, lossy bool) (*commit, error) {
	if row.offset < 0 {
		return nil, nil
	}
	known := g.commits
	if lossy {
		known = slices.Concat(g.former, g.commits)
	}
	for _, m := range known {
		if strconv.Itoa(m.serial) == row.note {
			if m.of != row.of || m.offset != row.offset {
				return nil, fmt.Errorf("group %s: %s@%d is what commit %d said of %s@%d", g.name, row.of, row.offset, m.serial, m.of, m.offset)
			}
			return m, nil
		}
	}
	return nil, fmt.Errorf("group %s: %s@%d with note %q was not committed", g.name, row.of, row.offset, row.note)
}

// outlived tells whether some commit that is there took effect after one that is not: a hole.
func (g *groupLedger) outlived(gone *commit, rows []found, visible map[*partition]*commit) bool {
	for _, row := range rows {
		if m := visible[row.of]; m != nil && gone.before(m) {
			return true
		}
	}
	return false
}

// keepOnly forgets what a power loss took.
func (g *groupLedger) keepOnly(visible map[*partition]*commit) {
	all := slices.Concat(g.former, g.commits)
	g.former, g.commits = nil, nil
	for _, m := range all {
		if visible[m.of] == m {
			g.commits = append(g.commits, m)
		} else {
			g.former = append(g.former, m)
		}
	}
	g.generation = 0
}

// String is for reports.
func (m *commit) String() string {
	if m == nil {
		return "none"
	}
	return fmt.Sprintf("commit %d of offset %d", m.serial, m.offset)
}

// forgetGenerations is for the morning: groups that were empty and had no offsets are gone, and may begin anew.
func (l *ledger) forgetGenerations() {
	for _, g := range l.groups {
		g.generation = 0
	}
}
