package e2e

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/deploy/process"
)

const (
	startMax = time.Minute // of Apache Kafka; Tidemark's own time is asserted by TestReady
	stopMax  = 20 * time.Second
)

// settings hold for every scenario, beside its own.
var settings = []string{
	"offsets.topic.replication.factor=1",
	"transaction.state.log.replication.factor=1",
	"transaction.state.log.min.isr=1",
	"min.insync.replicas=1",
	"group.initial.rebalance.delay.ms=0",
}

// broker is a Tidemark, or the Apache Kafka that is recorded.
type broker struct {
	address string
	folder  string   // log.dirs
	output  string   // file with what it printed
	command []string // starts it; may be used again
	process *exec.Cmd
}

// startBroker starts a broker with an empty data folder, which ends with the test.
func startBroker(t *testing.T, properties ...string) *broker {
	t.Helper()
	b := newBroker(t, properties...)
	b.start(t)
	t.Cleanup(func() {
		if b.process != nil {
			b.stop(t)
		}
	})
	return b
}

func newBroker(t *testing.T, properties ...string) *broker {
	t.Helper()
	dir := t.TempDir()
	b := &broker{address: freeAddress(t), output: filepath.Join(dir, "broker.log")}
	properties = append(append([]string{}, settings...), properties...)
	if *reference {
		b.folder = filepath.Join(dir, "data")
		b.command = kafka(t, dir, b, properties)
		return b
	}
	b.folder = filepath.Join(dir, "data", "logs")
	b.command = []string{*program, "dev", "--listen", b.address, "--admin", "127.0.0.1:0", "--data", filepath.Join(dir, "data")}
	for _, p := range append(properties, "tier.enable=false") {
		b.command = append(b.command, "--set", p)
	}
	return b
}

// kafka formats a folder for a node of Apache Kafka and returns the command that starts it.
func kafka(t *testing.T, dir string, b *broker, properties []string) []string {
	t.Helper()
	controller := freeAddress(t)
	file := filepath.Join(dir, "server.properties")
	properties = append(properties,
		"process.roles=broker,controller",
		"node.id=1",
		"listeners=PLAINTEXT://"+b.address+",CONTROLLER://"+controller,
		"advertised.listeners=PLAINTEXT://"+b.address+",CONTROLLER://"+controller,
		"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"controller.listener.names=CONTROLLER",
		"controller.quorum.bootstrap.servers="+controller,
		"log.dirs="+b.folder)
	if err := os.WriteFile(file, []byte(strings.Join(properties, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	const clusterID = "MkU3OEVBNTcwNTJENDM2Qg"
	format := java(t.Context(), *libs, "kafka.tools.StorageTool", "format", "--standalone", "-t", clusterID, "-c", file)
	if out, err := format.CombinedOutput(); err != nil {
		t.Fatalf("format: %v\n%s", err, out)
	}
	return java(t.Context(), *libs, "kafka.Kafka", file).Args
}

// start starts the broker, over the data that is there, and returns how long it took until it answered.
func (b *broker) start(t *testing.T) time.Duration {
	t.Helper()
	output, err := os.OpenFile(b.output, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	b.process = exec.Command(b.command[0], b.command[1:]...)
	b.process.Stdout, b.process.Stderr = output, output
	begin := time.Now()
	if err := b.process.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), startMax)
	defer cancel()
	if err := awaitMetadata(ctx, b.address); err != nil {
		b.kill(t)
		t.Fatalf("start the broker: %v\n%s", err, b.printed())
	}
	return time.Since(begin)
}

// stop ends the broker as an operator does.
func (b *broker) stop(t *testing.T) {
	t.Helper()
	process := b.process
	b.process = nil
	if err := process.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(stopMax, func() { _ = process.Process.Kill() })
	defer timer.Stop()
	if err := process.Wait(); err != nil && !*reference { // a JVM says 143
		t.Errorf("stop the broker: %v\n%s", err, b.printed())
	}
}

// kill ends the broker by kill -9.
func (b *broker) kill(t *testing.T) {
	t.Helper()
	process := b.process
	b.process = nil
	if err := process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = process.Wait() // says that it was killed
}

// printed is the end of what the broker printed.
func (b *broker) printed() string {
	text, err := os.ReadFile(b.output)
	if err != nil {
		return err.Error()
	}
	const shown = 4 << 10
	return string(text[max(0, len(text)-shown):])
}

// freeAddress is one whose port has five digits, since the tools' tables are as wide as what they show.
func freeAddress(t *testing.T) string {
	t.Helper()
	address, err := process.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// awaitMetadata asks the broker for its cluster until it answers with a controller.
func awaitMetadata(ctx context.Context, address string) error {
	pause := time.NewTicker(2 * time.Millisecond)
	defer pause.Stop()
	for {
		err := askMetadata(ctx, address)
		if err == nil {
			return nil
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		}
	}
}

var errNoController = errors.New("there is no controller yet")

func askMetadata(ctx context.Context, address string) error {
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	request := kmsg.NewPtrMetadataRequest()
	request.Version = 8 // the last whose headers have no tags
	if _, err := c.Write(kmsg.NewRequestFormatter().AppendRequest(nil, request, 1)); err != nil {
		return err
	}
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return err
	}
	body := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(c, body); err != nil {
		return err
	}
	response := kmsg.NewPtrMetadataResponse()
	response.Version = request.Version
	if err := response.ReadFrom(body[4:]); err != nil { // after the correlation id
		return fmt.Errorf("decode Metadata: %w", err)
	}
	if len(response.Brokers) == 0 || response.ControllerID < 0 {
		return errNoController
	}
	return nil
}
