package process

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

// Program is tidemark's binary, for a package of tests.
type Program struct {
	prebuilt string
	built    string // the folder of one that was built here
	once     sync.Once
	err      error
}

// Flag defines the flag -broker, which names a binary that is there.
func Flag() *Program {
	p := &Program{}
	flag.StringVar(&p.prebuilt, "broker", "", "the broker's binary; built from the source if empty")
	return p
}

// Path is where the binary is; it is built if that has to be, once.
func (p *Program) Path() (string, error) {
	if p.prebuilt != "" {
		return p.prebuilt, nil
	}
	p.once.Do(func() { p.err = p.build() })
	return filepath.Join(p.built, "tidemark"), p.err
}

func (p *Program) build() (err error) {
	if p.built, err = os.MkdirTemp("", "tidemark-"); err != nil {
		return err
	}
	build := exec.CommandContext(context.Background(), "go", "build", "-o", p.built, "github.com/tidemark-io/tidemark/cmd/tidemark")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

// Remove deletes what was built, when all tests have run.
func (p *Program) Remove() {
	if p.built != "" {
		_ = os.RemoveAll(p.built) // a temporary folder
	}
}
