package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"

	"github.com/tidemark-io/tidemark/deploy/process"
)

// broker is a broker under test.
type broker struct {
	*process.Broker
	output *os.File // its log
}

// newBroker is a broker that was not started yet, with its data in a folder and its log in a file.
func newBroker(binary, data, output string, settings ...string) (*broker, error) {
	b, err := process.New(binary, data, settings...)
	if err != nil {
		return nil, err
	}
	log, err := os.Create(output)
	if err != nil {
		return nil, err
	}
	b.Stderr = log
	return &broker{b, log}, nil
}

// stop ends the broker as an operator does, and wants it to end well.
func (b *broker) stop() error { return errors.Join(b.Stop(), b.output.Close()) }

// complaints are the lines of the broker's log that no client may bring about.
func (b *broker) complaints() (list []string) {
	for line := range strings.Lines(b.Log()) {
		if strings.Contains(line, "level=ERROR") || strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:") {
			list = append(list, strings.TrimSpace(line))
		}
	}
	return list
}

func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, name, args...)
	c.Stderr = os.Stderr
	return c
}
