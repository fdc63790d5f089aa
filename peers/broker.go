package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

const (
	startMax = 10 * time.Second
	stopMax  = 20 * time.Second
)

// broker is a running broker under test.
type broker struct {
	address string
	process *exec.Cmd
	log     string
}

// startBroker starts a broker with its data in a folder and its output in a file, and waits until it is ready.
func startBroker(ctx context.Context, binary, address, data, output string, settings []string) (*broker, error) {
	admin, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	args := []string{"dev", "--listen", address, "--admin", admin, "--data", data}
	for _, s := range settings {
		args = append(args, "--set", s)
	}
	log, err := os.Create(output)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	b := &broker{address: address, process: command(ctx, binary, args...), log: log.Name()}
	b.process.Stdout, b.process.Stderr = log, log
	b.process.Cancel = func() error { return b.process.Process.Signal(syscall.SIGTERM) }
	if err := b.process.Start(); err != nil {
		return nil, err
	}
	if err := waitReady(ctx, "http://"+admin+"/readyz"); err != nil {
		_ = b.process.Process.Kill()
		_ = b.process.Wait()
		return nil, b.explain(err)
	}
	return b, nil
}

// stop ends the broker as an operator does, and wants it to end well.
func (b *broker) stop() error {
	timer := time.AfterFunc(stopMax, func() { _ = b.process.Process.Kill() })
	defer timer.Stop()
	if err := b.process.Process.Signal(syscall.SIGTERM); err != nil {
		return b.explain(err)
	}
	if err := b.process.Wait(); err != nil {
		return b.explain(fmt.Errorf("stop the broker: %w", err))
	}
	return nil
}

// complaints are the lines of the broker's log that no client may bring about.
func (b *broker) complaints() ([]string, error) {
	text, err := os.ReadFile(b.log)
	if err != nil {
		return nil, err
	}
	var list []string
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "level=ERROR") || strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:") {
			list = append(list, strings.TrimSpace(line))
		}
	}
	return list, nil
}

// explain adds the end of the broker's log to an error.
func (b *broker) explain(err error) error {
	text, readErr := os.ReadFile(b.log)
	if readErr != nil {
		return errors.Join(err, readErr)
	}
	const shown = 4 << 10
	return fmt.Errorf("%w\n%s", err, text[max(0, len(text)-shown):])
}

// freeAddress is an address on loopback that nobody listened on a moment ago.
func freeAddress(ctx context.Context) (string, error) {
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

func waitReady(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, startMax)
	defer cancel()
	pause := time.NewTicker(20 * time.Millisecond)
	defer pause.Stop()
	for {
		if isReady(ctx, url) {
			return nil
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return fmt.Errorf("the broker is not ready after %v", startMax)
		}
	}
}

func isReady(ctx context.Context, url string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	response.Body.Close()
	return response.StatusCode == http.StatusOK
}

func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, name, args...)
	c.Stderr = os.Stderr
	return c
}
