package vfs

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
)

// sectorSize is what a disk writes whole: a torn write ends inside one.
const sectorSize = 512

// entry says what a name of a directory leads to; a nil node removes it.
type entry struct {
	dir  *node
	name string
	n    *node
}

func (e entry) put(n *node) {
	if n == nil {
		delete(e.dir.entries, e.name)
	} else {
		e.dir.entries[e.name] = n
	}
}

// entryChange is one step of the name space, atomic: one entry, or the two of a rename.
type entryChange struct {
	step int64
	set  []entry
	old  []*node // what the entries led to before
}

// dirs are the directories that the change concerns, each once.
func (c *entryChange) dirs() []*node {
	if len(c.set) == 2 && c.set[0].dir != c.set[1].dir {
		return []*node{c.set[0].dir, c.set[1].dir}
	}
	return []*node{c.set[0].dir}
}

// changeLocked carries out one step and notes it as pending in each directory concerned.
func (m *Mem) changeLocked(set ...entry) {
	m.steps++
	c := &entryChange{step: m.steps, set: set}
	for _, e := range set {
		c.old = append(c.old, e.dir.entries[e.name])
		e.put(e.n)
	}
	for _, d := range c.dirs() {
		d.pending = append(d.pending, c)
	}
}

func (c *entryChange) undo() {
	for i, e := range slices.Backward(c.set) {
		e.put(c.old[i])
	}
}

// settle makes the oldest count pending changes of a directory durable. One that spans two directories takes the
// changes before it in the other directory along, so that each directory's changes stay in order.
func (n *node) settle(count int) {
	for ; count > 0 && len(n.pending) > 0; count-- {
		c := n.pending[0]
		n.pending = n.pending[1:]
		for _, d := range c.dirs() {
			if before := slices.Index(d.pending, c); before >= 0 {
				d.settle(before)
				d.pending = d.pending[1:]
			}
		}
	}
}

// ProcessCrashClone is the file system after the process was killed: the page cache was kept, so all that was written
// is there, though no more durable than before. Open files, mappings and locks are gone from the clone, and what is done
// with them afterwards does not reach it.
func (m *Mem) ProcessCrashClone() *Mem {
	clone, _ := m.clone()
	clone.recount()
	return clone
}

// CrashClone is the file system after the power was lost. What was synced is there. Of the rest,
//   - of each directory a random number of its unsynced changes survives, oldest first; a rename survives whole or not;
//   - of each file a random number of its unsynced writes and truncations survives, oldest first, the last of them
//     perhaps in part, and its last sector perhaps torn (filled up with zeros or garbage).
//
// Nothing is promised about order between files, or between files and directories. All in the clone is durable.
func (m *Mem) CrashClone(rng *rand.Rand) *Mem {
	clone, nodes := m.clone()
	for _, n := range nodes {
		n.settle(survivors(rng, len(n.pending)))
	}
	var lost []*entryChange
	for _, n := range nodes {
		lost = append(lost, n.pending...)
		n.pending = nil
	}
	slices.SortFunc(lost, func(a, b *entryChange) int { return cmp.Compare(b.step, a.step) })
	for _, c := range slices.Compact(lost) {
		c.undo()
	}
	for _, n := range clone.recount() {
		n.loseData(rng)
	}
	clone.recount()
	return clone
}

// survivors draws how many of n changes outlive a crash. All and none are the likely cases, as on a real disk.
func survivors(rng *rand.Rand, n int) int {
	switch rng.IntN(4) {
	case 0:
		return 0
	case 1:
		return n
	}
	return rng.IntN(n + 1)
}

// loseData plays the crash on one file's contents.
func (n *node) loseData(rng *rand.Rand) {
	changes := n.unsync
	n.unsync = nil
	if len(changes) == 0 {
		return
	}
	kept := survivors(rng, len(changes))
	if kept == len(changes) {
		return
	}
	var written []byte // by the change that survives in part
	for _, c := range slices.Backward(changes[kept:]) {
		if !c.truncate {
			written = slices.Clone(n.data[c.at : c.at+c.length])
		}
		n.undo(c)
	}
	if c := changes[kept]; !c.truncate {
		n.tear(rng, c, written[:survivors(rng, len(written))], c.length)
	}
}

// tear lands a part of the write c that is length bytes long.
func (n *node) tear(rng *rand.Rand, c dataChange, part []byte, length int64) {
	if len(part) == 0 {
		return
	}
	end := c.at + int64(len(part))
	torn := min((end+sectorSize-1)/sectorSize*sectorSize, c.at+length)
	fill := rng.IntN(3) // 0: the write ends clean, 1: zeros follow, 2: garbage follows
	if fill == 0 {
		torn = end
	}
	n.resize(max(int64(len(n.data)), torn))
	copy(n.data[c.at:], part)
	for i := end; i < torn; i++ {
		n.data[i] = 0
		if fill == 2 {
			n.data[i] = byte(rng.Uint32())
		}
	}
}

// clone copies the whole state. The nodes come in an order that depends on names and history alone.
func (m *Mem) clone() (*Mem, []*node) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	c := cloner{nodes: map[*node]*node{}, changes: map[*entryChange]*entryChange{}}
	return &Mem{root: c.node(m.root), locks: map[string]bool{}, space: m.space, clock: m.clock, steps: m.steps}, c.order
}

type cloner struct {
	nodes   map[*node]*node
	changes map[*entryChange]*entryChange
	order   []*node
}

// node copies n with all that it leads to, also by way of changes that may be undone.
func (c *cloner) node(n *node) *node {
	if n == nil {
		return nil
	}
	if done, ok := c.nodes[n]; ok {
		return done
	}
	cp := &node{data: slices.Clone(n.data), unsync: slices.Clone(n.unsync), modTime: n.modTime}
	c.nodes[n] = cp
	c.order = append(c.order, cp)
	if n.isDir() {
		cp.entries = make(map[string]*node, len(n.entries))
	}
	for _, name := range slices.Sorted(maps.Keys(n.entries)) {
		cp.entries[name] = c.node(n.entries[name])
	}
	for _, change := range n.pending {
		cp.pending = append(cp.pending, c.change(change))
	}
	return cp
}

func (c *cloner) change(change *entryChange) *entryChange {
	if done, ok := c.changes[change]; ok {
		return done
	}
	cp := &entryChange{step: change.step}
	c.changes[change] = cp
	for i, e := range change.set {
		cp.set = append(cp.set, entry{c.node(e.dir), e.name, c.node(e.n)})
		cp.old = append(cp.old, c.node(change.old[i]))
	}
	return cp
}

// recount works out which nodes of a fresh clone have a name and what room they take, and returns them in order.
func (m *Mem) recount() []*node {
	m.used = 0
	var linked []*node
	var walk func(n *node)
	walk = func(n *node) {
		n.linked = true
		linked = append(linked, n)
		m.used += int64(len(n.data))
		for _, name := range slices.Sorted(maps.Keys(n.entries)) {
			walk(n.entries[name])
		}
	}
	walk(m.root)
	return linked
}
