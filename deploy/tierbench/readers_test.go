package tierbench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// The flags of a process of readers, which the benchmarks start themselves.
var (
	readersOf   = flag.String("readers-of", "", "be fifty readers of the broker at this address; what they read is told on standard input")
	readerPause = flag.Duration("reader-pause", 0, "how long each of them waits between two fetches")
)

// readers has fifty connections of another process read the cursors, over and over, until ctx ends: a client that measures would wait for
// its own readers. With -pin they run when nobody else wants the core that they share with it.
func (r *broker) readers(cursors []cursor, pause time.Duration) func(context.Context, func()) {
	return func(ctx context.Context, begun func()) {
		defer begun()
		name, err := os.Executable()
		if err != nil {
			r.b.Error(err)
			return
		}
		words := []string{name, "-readers-of=" + r.Address, fmt.Sprint("-reader-pause=", pause)}
		if *pin {
			words = append([]string{"chrt", "--idle", "0"}, words...)
		}
		var plan, said bytes.Buffer
		for _, c := range cursors {
			fmt.Fprintln(&plan, c.topic, c.partition, c.offset, c.end)
		}
		command := exec.CommandContext(ctx, words[0], words[1:]...)
		command.Stdin, command.Stderr = &plan, &said
		out, err := command.StdoutPipe()
		if err == nil {
			err = command.Start()
		}
		if err != nil {
			r.b.Error(err)
			return
		}
		_, _ = bufio.NewReader(out).ReadString('\n') // if they fail, Wait says so
		begun()
		if err := command.Wait(); ctx.Err() == nil {
			r.b.Errorf("the readers have ended: %v: %s", err, said.Bytes())
		}
	}
}

// beReaders is what the process of readers does. It says when all are connected.
func beReaders(address string, pause time.Duration, say io.Writer) error {
	var cursors []cursor
	for {
		var c cursor
		if _, err := fmt.Fscan(os.Stdin, &c.topic, &c.partition, &c.offset, &c.end); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		cursors = append(cursors, c)
	}
	failed := make(chan error, readersAtOnce)
	var connected sync.WaitGroup
	for i := range readersAtOnce {
		connected.Add(1)
		go func() {
			c, err := connect(address)
			connected.Done()
			if err == nil {
				time.Sleep(pause * time.Duration(i) / readersAtOnce) // readers who know nothing of each other don't keep step
				err = c.readForever(cursors[i%len(cursors)], pause)
			}
			failed <- err
		}()
	}
	connected.Wait()
	if _, err := fmt.Fprintln(say, "connected"); err != nil {
		return err
	}
	return <-failed
}

// readForever reads from a cursor to its end, and again.
func (c *conn) readForever(from cursor, pause time.Duration) error {
	at := []cursor{from}
	for {
		if _, err := c.fetch(at); err != nil {
			return err
		}
		if at[0].offset >= at[0].end {
			at[0] = from
		}
		time.Sleep(pause)
	}
}
