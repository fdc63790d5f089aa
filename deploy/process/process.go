// Package process runs a broker as a process of its own, for what can't be done to one inside of a test: kill it, measure it, let other
// programs loose on it. A Broker is a place (addresses, folder, settings) that outlives its processes; each start is `tidemark dev` there.
//
// A start waits until the broker serves, an end until it is gone, neither for ever. One goroutine drives a Broker; its log may be read
// by others meanwhile.
package process

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	startMax = time.Minute
	stopMax  = 30 * time.Second

	tracesMax = 5 * time.Second // for a process that hangs to print where
	shownMax  = 8 << 10         // of the log of one that does not, in an error
)

// Broker is a broker's place, and its process while it runs. All but Ready may be changed between two starts.
type Broker struct {
	Command     []string // the program, perhaps behind another that becomes it (taskset)
	Environment []string // key=value, beside this process's
	Address     string   // for Kafka clients
	Admin       string   // for metrics, health and profiles
	Data        string   // folder of the logs and, without Store, of the object store
	Store       string   // URL of the object store
	Settings    []string // key=value
	Stderr      io.Writer

	Ready time.Duration // how long the last start took until it served

	cmd      *exec.Cmd // nil while it does not run
	greeting string
	log      *output
}

// New is a broker that was not started yet, at addresses where nobody listens.
func New(program, data string, settings ...string) (*Broker, error) {
	address, err := FreeAddress()
	if err != nil {
		return nil, err
	}
	admin, err := FreeAddress()
	if err != nil {
		return nil, err
	}
	return &Broker{Command: []string{program}, Address: address, Admin: admin, Data: data, Settings: settings}, nil
}

// Start starts the broker, with further arguments, and waits until it serves. It is stopped when ctx ends. EndedByItself
// tells a broker that refuses to start from one that does not get that far.
func (b *Broker) Start(ctx context.Context, args ...string) error {
	words := slices.Concat(b.Command, b.arguments(), args)
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Env = append(os.Environ(), b.Environment...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	b.log = &output{also: b.Stderr}
	cmd.Stderr = b.log
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	inTime := deadline(cmd, startMax)
	greeting, serves := readGreeting(stdout)
	hung := !inTime()
	if serves && !hung {
		b.cmd, b.greeting, b.Ready = cmd, greeting, time.Since(begun)
		return nil
	}
	err = cmd.Wait()
	switch {
	case hung:
		return fmt.Errorf("the broker does not serve after %v:\n%s", startMax, b.log)
	case err == nil:
		return fmt.Errorf("the broker ends at once:\n%s", b.log.end())
	}
	return fmt.Errorf("the broker does not start: %w\n%s", err, b.log.end())
}

func (b *Broker) arguments() []string {
	args := []string{"dev", "--listen", b.Address, "--admin", b.Admin, "--data", b.Data}
	if b.Store != "" {
		args = append(args, "--store", b.Store)
	}
	for _, s := range b.Settings {
		args = append(args, "--set", s)
	}
	return args
}

// readGreeting reads what the program prints when it serves, of which nothing follows. It tells whether that came.
func readGreeting(stdout io.Reader) (string, bool) {
	var greeting strings.Builder
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		greeting.WriteString(lines.Text() + "\n")
		if strings.HasPrefix(lines.Text(), "Ctrl-C") {
			return greeting.String(), true
		}
	}
	return greeting.String(), false
}

// Stop ends the broker as an operator does. It is an error if it does not end, or (EndedByItself) not with status 0.
func (b *Broker) Stop() error { return b.end(syscall.SIGTERM) }

// Kill is kill -9.
func (b *Broker) Kill() { _ = b.end(syscall.SIGKILL) } // an error says that it was killed

func (b *Broker) end(how syscall.Signal) error {
	cmd := b.cmd
	if cmd == nil {
		return nil
	}
	b.cmd = nil
	_ = cmd.Process.Signal(how) // an error says that it has ended
	inTime := deadline(cmd, stopMax)
	err := cmd.Wait()
	switch {
	case !inTime():
		return fmt.Errorf("the broker does not end after %v:\n%s", stopMax, b.log)
	case err != nil:
		return fmt.Errorf("the broker ends with %w\n%s", err, b.log.end())
	}
	return nil
}

// deadline ends a process that hangs for so long. It has to say where it does, and a moment to say so. inTime tells whether it
// came to that.
func deadline(cmd *exec.Cmd, d time.Duration) (inTime func() bool) {
	asked := time.AfterFunc(d, func() { _ = cmd.Process.Signal(syscall.SIGQUIT) }) // an error says that it has ended
	killed := time.AfterFunc(d+tracesMax, func() { _ = cmd.Process.Kill() })
	return func() bool {
		killed.Stop()
		return asked.Stop()
	}
}

// EndedByItself tells the error of a broker that ended in time, with whatever status, from others.
func EndedByItself(err error) bool {
	var status *exec.ExitError
	return errors.As(err, &status)
}

// Greeting is what the program printed when it served.
func (b *Broker) Greeting() string { return b.greeting }

// Log is what the process has logged so far, or the last one had.
func (b *Broker) Log() string { return b.log.String() }

// output is what a process has logged so far.
type output struct {
	also io.Writer // may be nil
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(p)
	if o.also == nil {
		return len(p), nil
	}
	return o.also.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// end is the last part.
func (o *output) end() string {
	text := o.String()
	return text[max(0, len(text)-shownMax):]
}
