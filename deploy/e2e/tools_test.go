package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

// toolMax is how long a tool may run.
const toolMax = time.Minute

// classes are the main classes of the tools.
var classes = map[string]string{
	"kafka-broker-api-versions": "BrokerApiVersionsCommand",
	"kafka-cluster":             "ClusterTool",
	"kafka-configs":             "ConfigCommand",
	"kafka-console-consumer":    "consumer.ConsoleConsumer",
	"kafka-console-producer":    "ConsoleProducer",
	"kafka-consumer-groups":     "consumer.group.ConsumerGroupCommand",
	"kafka-consumer-perf-test":  "ConsumerPerformance",
	"kafka-delete-records":      "DeleteRecordsCommand",
	"kafka-dump-log":            "DumpLogSegments",
	"kafka-e2e-latency":         "EndToEndLatency",
	"kafka-features":            "FeatureCommand",
	"kafka-get-offsets":         "GetOffsetShell",
	"kafka-groups":              "GroupsCommand",
	"kafka-log-dirs":            "LogDirsCommand",
	"kafka-metadata-quorum":     "MetadataQuorumCommand",
	"kafka-producer-perf-test":  "ProducerPerformance",
	"kafka-topics":              "TopicCommand",
	"kafka-transactions":        "TransactionsCommand",
	"kafka-verifiable-consumer": "VerifiableConsumer",
	"kafka-verifiable-producer": "VerifiableProducer",
}

// exits lists the tools that call System.exit themselves, so that each run needs a JVM of its own.
var exits = map[string]bool{"kafka-verifiable-consumer": true, "kafka-verifiable-producer": true}

const toolPackage = "org.apache.kafka.tools."

// invocation is one run of a tool: what Tools.java takes.
type invocation struct {
	ID   int      `json:"id"`
	Main string   `json:"main"`
	Args []string `json:"args"`
	In   string   `json:"in,omitempty"`
	Out  string   `json:"out"`
	Err  string   `json:"err"` // may be Out
}

// tools is a JVM with Tools.java in it.
type tools struct {
	stdin io.Writer

	mu      sync.Mutex // guards what follows, and the order of lines on stdin
	last    int
	waiting map[int]chan int // an invocation's exit status
	ended   error            // why the JVM ended
}

var errToolsEnded = errors.New("the JVM of the tools has ended")

// startTools starts the JVM; it is ready when its first tool answers.
func startTools(ctx context.Context, libs string) (*tools, error) {
	process := java(ctx, libs, "Tools.java")
	process.Stderr = os.Stderr
	stdin, err := process.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := process.Start(); err != nil {
		return nil, err
	}
	t := &tools{stdin: stdin, waiting: map[int]chan int{}}
	go t.receive(stdout)
	return t, nil
}

// java is a JVM with Kafka's jars on the class path, quiet and quick to start.
func java(ctx context.Context, libs string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "java", append([]string{
		"-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
		"-Duser.timezone=UTC", "-Duser.language=en", "-Duser.country=US", "-Dfile.encoding=UTF-8",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
		"-Dorg.slf4j.simpleLogger.log.org.apache.kafka.tools=warn",
		"-Dorg.slf4j.simpleLogger.log.org.apache.kafka.clients.producer.internals.ErrorLoggingCallback=error",
		"-Dorg.slf4j.simpleLogger.showThreadName=false",
		"-cp", filepath.Join(libs, "*"),
	}, args...)...)
}

func (t *tools) receive(stdout io.Reader) {
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		var answer struct{ ID, Status int }
		if err := json.Unmarshal(lines.Bytes(), &answer); err != nil {
			break
		}
		t.mu.Lock()
		t.waiting[answer.ID] <- answer.Status // has room for it
		delete(t.waiting, answer.ID)
		t.mu.Unlock()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = errToolsEnded
	for _, status := range t.waiting {
		close(status)
	}
}

// start begins an invocation and returns its id and where its exit status will come.
func (t *tools) start(i invocation) (int, <-chan int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended != nil {
		return 0, nil, t.ended
	}
	t.last++
	i.ID = t.last
	status := make(chan int, 1)
	t.waiting[i.ID] = status
	return i.ID, status, t.sendLocked(i)
}

// stop asks a tool to end, as SIGTERM does.
func (t *tools) stop(id int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sendLocked(map[string]any{"id": id, "stop": true})
}

func (t *tools) sendLocked(request any) error {
	line, err := json.Marshal(request)
	if err != nil {
		return err
	}
	_, err = t.stdin.Write(append(line, '\n'))
	return err
}

// wait waits for a tool's exit status.
func (t *tools) wait(id int, status <-chan int) (int, error) {
	timer := time.NewTimer(toolMax)
	defer timer.Stop()
	select {
	case s, ok := <-status:
		if !ok {
			return 0, errToolsEnded
		}
		return s, nil
	case <-timer.C:
		return 0, errors.Join(fmt.Errorf("the tool did not end within %v", toolMax), t.stop(id))
	}
}

// runAlone runs a tool in a JVM of its own.
func runAlone(ctx context.Context, libs string, i invocation) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, toolMax)
	defer cancel()
	out, err := os.Create(i.Out)
	if err != nil {
		return 0, err
	}
	defer out.Close()
	process := java(ctx, libs, append([]string{i.Main}, i.Args...)...)
	process.Stdout, process.Stderr = out, out
	err = process.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && ctx.Err() == nil {
		return exit.ExitCode(), nil
	}
	return 0, err
}
