package vfs

import (
	"io"
	"path"
	"strconv"
	"sync"
)

// Op names a call of FS or File.
type Op string

// The operations that a Fault sees.
const (
	OpCreate    Op = "create"
	OpOpen      Op = "open"
	OpOpenRead  Op = "openread"
	OpRename    Op = "rename"
	OpRemove    Op = "remove"
	OpRemoveAll Op = "removeall"
	OpMkdirAll  Op = "mkdirall"
	OpSyncDir   Op = "syncdir"
	OpList      Op = "list"
	OpStat      Op = "stat"
	OpLock      Op = "lock"
	OpUsage     Op = "usage"
	OpRead      Op = "read"
	OpWrite     Op = "write"
	OpTruncate  Op = "truncate"
	OpReserve   Op = "reserve"
	OpPunchHole Op = "punch hole"
	OpSync      Op = "sync"
	OpSize      Op = "size"
	OpMap       Op = "map"
	OpClose     Op = "close"
)

// Call is one call that passes through a Fault.
type Call struct {
	Op      Op
	Path    string // as opened, for calls on a file
	NewPath string // of a rename
	Offset  int64  // of a read, write or reservation; the size of a truncation or mapping
	Length  int    // of a read, write or reservation
}

// String is the call as a line of a golden file-operation list.
func (c Call) String() string {
	s := string(c.Op) + " " + c.Path
	switch c.Op {
	case OpRename:
		s += " " + c.NewPath
	case OpRead, OpWrite, OpReserve, OpPunchHole:
		s += " " + strconv.FormatInt(c.Offset, 10) + "+" + strconv.Itoa(c.Length)
	case OpTruncate, OpMap:
		s += " " + strconv.FormatInt(c.Offset, 10)
	}
	return s
}

// Rule says which calls a Fault touches and what becomes of them.
type Rule struct {
	Op    Op     // empty: any
	Path  string // a pattern of path.Match for the whole path or its last element; empty: any
	Skip  int    // so many matching calls pass before the rule works
	Times int    // how often the rule works; 0: for ever

	// Hook, if set, runs before the call with no lock held. It may block, to play a slow disk, or note the call.
	Hook func(Call)
	// Err, if set, is returned in place of carrying out the call.
	Err error
	// Landed is how many bytes of a failing write reach the file first.
	Landed int
}

// Fault is a file system that passes calls on to another one, but for those that its rules touch. A Sync that failed is
// never made up for: further ones of the same open file succeed and do nothing, as Linux behaves after a write-back error.
type Fault struct {
	inner FS

	mu    sync.Mutex // guards rules and their counts; a leaf
	rules []*activeRule
}

var _ FS = (*Fault)(nil)

type activeRule struct {
	Rule
	seen int // matching calls so far
}

// NewFault wraps inner. Without rules it changes nothing.
func NewFault(inner FS) *Fault { return &Fault{inner: inner} }

// SetRules replaces the rules and their counts. For each call the first rule that matches and is neither skipping nor
// used up applies, and that one alone.
func (f *Fault) SetRules(rules ...Rule) {
	active := make([]*activeRule, len(rules))
	for i, r := range rules {
		active[i] = &activeRule{Rule: r}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = active
}

func (r *Rule) matches(c Call) bool {
	if r.Op != "" && r.Op != c.Op {
		return false
	}
	if r.Path == "" {
		return true
	}
	for _, name := range []string{c.Path, path.Base(c.Path)} {
		if ok, err := path.Match(r.Path, name); ok && err == nil {
			return true
		}
	}
	return false
}

// rule finds the rule that applies to a call and runs its hook.
func (f *Fault) rule(c Call) Rule {
	r := f.match(c)
	if r.Hook != nil {
		r.Hook(c)
	}
	return r
}

func (f *Fault) match(c Call) Rule {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.rules {
		if !r.matches(c) {
			continue
		}
		r.seen++
		if n := r.seen - r.Skip; n > 0 && (r.Times == 0 || n <= r.Times) {
			return r.Rule
		}
	}
	return Rule{}
}

func (f *Fault) file(c Call, open func(string) (File, error)) (File, error) {
	if err := f.rule(c).Err; err != nil {
		return nil, pathError(string(c.Op), c.Path, err)
	}
	file, err := open(c.Path)
	if err != nil {
		return nil, err
	}
	return &faultFile{File: file, fs: f, path: c.Path}, nil
}

func (f *Fault) check(c Call) error {
	if err := f.rule(c).Err; err != nil {
		return pathError(string(c.Op), c.Path, err)
	}
	return nil
}

// Create implements FS.
func (f *Fault) Create(name string) (File, error) {
	return f.file(Call{Op: OpCreate, Path: name}, f.inner.Create)
}

// Open implements FS.
func (f *Fault) Open(name string) (File, error) {
	return f.file(Call{Op: OpOpen, Path: name}, f.inner.Open)
}

// OpenRead implements FS.
func (f *Fault) OpenRead(name string) (File, error) {
	return f.file(Call{Op: OpOpenRead, Path: name}, f.inner.OpenRead)
}

// Rename implements FS.
func (f *Fault) Rename(oldName, newName string) error {
	if err := f.check(Call{Op: OpRename, Path: oldName, NewPath: newName}); err != nil {
		return err
	}
	return f.inner.Rename(oldName, newName)
}

// Remove implements FS.
func (f *Fault) Remove(name string) error {
	if err := f.check(Call{Op: OpRemove, Path: name}); err != nil {
		return err
	}
	return f.inner.Remove(name)
}

// RemoveAll implements FS.
func (f *Fault) RemoveAll(name string) error {
	if err := f.check(Call{Op: OpRemoveAll, Path: name}); err != nil {
		return err
	}
	return f.inner.RemoveAll(name)
}

// MkdirAll implements FS.
func (f *Fault) MkdirAll(name string) error {
	if err := f.check(Call{Op: OpMkdirAll, Path: name}); err != nil {
		return err
	}
	return f.inner.MkdirAll(name)
}

// SyncDir implements FS.
func (f *Fault) SyncDir(name string) error {
	if err := f.check(Call{Op: OpSyncDir, Path: name}); err != nil {
		return err
	}
	return f.inner.SyncDir(name)
}

// List implements FS.
func (f *Fault) List(name string) ([]string, error) {
	if err := f.check(Call{Op: OpList, Path: name}); err != nil {
		return nil, err
	}
	return f.inner.List(name)
}

// Stat implements FS.
func (f *Fault) Stat(name string) (Info, error) {
	if err := f.check(Call{Op: OpStat, Path: name}); err != nil {
		return Info{}, err
	}
	return f.inner.Stat(name)
}

// Lock implements FS.
func (f *Fault) Lock(name string) (io.Closer, error) {
	if err := f.check(Call{Op: OpLock, Path: name}); err != nil {
		return nil, err
	}
	return f.inner.Lock(name)
}

// Usage implements FS.
func (f *Fault) Usage(name string) (Usage, error) {
	if err := f.check(Call{Op: OpUsage, Path: name}); err != nil {
		return Usage{}, err
	}
	return f.inner.Usage(name)
}

// faultFile passes Fd on as it is: what sendfile reads goes past the rules.
type faultFile struct {
	File
	fs   *Fault
	path string

	mu         sync.Mutex // guards syncFailed; a leaf
	syncFailed bool
}

func (f *faultFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.fs.check(Call{Op: OpRead, Path: f.path, Offset: off, Length: len(p)}); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, off)
}

func (f *faultFile) WriteAt(p []byte, off int64) (int, error) {
	r := f.fs.rule(Call{Op: OpWrite, Path: f.path, Offset: off, Length: len(p)})
	if r.Err == nil {
		return f.File.WriteAt(p, off)
	}
	n, err := 0, error(nil)
	if r.Landed > 0 {
		n, err = f.File.WriteAt(p[:min(r.Landed, len(p))], off)
	}
	if err == nil {
		err = pathError(string(OpWrite), f.path, r.Err)
	}
	return n, err
}

func (f *faultFile) Truncate(size int64) error {
	if err := f.fs.check(Call{Op: OpTruncate, Path: f.path, Offset: size}); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *faultFile) Reserve(from, to int64) {
	if f.fs.check(Call{Op: OpReserve, Path: f.path, Offset: from, Length: int(to - from)}) == nil {
		f.File.Reserve(from, to)
	}
}

func (f *faultFile) PunchHole(from, to int64) error {
	if err := f.fs.check(Call{Op: OpPunchHole, Path: f.path, Offset: from, Length: int(to - from)}); err != nil {
		return err
	}
	return f.File.PunchHole(from, to)
}

func (f *faultFile) Sync() error {
	err := f.fs.check(Call{Op: OpSync, Path: f.path})
	f.mu.Lock()
	failed := f.syncFailed
	f.syncFailed = failed || err != nil
	f.mu.Unlock()
	if err != nil || failed {
		return err
	}
	return f.File.Sync()
}

func (f *faultFile) Size() (int64, error) {
	if err := f.fs.check(Call{Op: OpSize, Path: f.path}); err != nil {
		return 0, err
	}
	return f.File.Size()
}

func (f *faultFile) Map(maxSize int64) (Mapping, error) {
	if err := f.fs.check(Call{Op: OpMap, Path: f.path, Offset: maxSize}); err != nil {
		return nil, err
	}
	return f.File.Map(maxSize)
}

// Close closes the file also where a rule makes it report an error, as close does.
func (f *faultFile) Close() error {
	err := f.fs.check(Call{Op: OpClose, Path: f.path})
	if closeErr := f.File.Close(); err == nil {
		err = closeErr
	}
	return err
}
