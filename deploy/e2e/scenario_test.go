package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// untilMax is how long a condition may take to come true.
const untilMax = 30 * time.Second

// scenario is the state of a transcript while it runs. Its directives:
//
//	broker          starts the broker with the settings of the input, a line each
//	restart [kill]  stops the broker, or kills it, and starts it again over its data
//	file NAME       writes the input to a file
//	run [sort]      runs the input's commands, a line each, and prints what they printed; input of the form /regexp/ leaves
//	                matching lines out, on either broker: a comment says why they differ
//	shape           runs the commands; each line that they print has to match one of the regular expressions that are
//	                expected, and each of these has to match. Never rewritten: it holds for both brokers
//	let NAME        runs the commands and keeps what the group of the input's /regexp/ matched, as $NAME
//	until           repeats the command until its output matches the input's /regexp/
//	start NAME      starts a command in the background
//	wait NAME       waits for its end and prints what it printed
//	stop NAME       ends it as SIGTERM does, and prints what it printed
//
// A command is a tool with its arguments, quoted as in a shell, and with < FILE and > FILE. $tmp is the folder of the files,
// $broker the broker's address. The tools get --bootstrap-server by themselves.
type scenario struct {
	t          *testing.T
	tools      *tools
	broker     *broker
	tmp        string
	outputs    int // files of output so far
	variables  map[string]string
	background map[string]*running
	mismatches []string
}

// running is a command whose tool has been started.
type running struct {
	id     int
	status <-chan int
	output string // file
}

func newScenario(t *testing.T) *scenario {
	tools, err := kafkaTools()
	if err != nil {
		t.Fatal(err)
	}
	tmp := t.TempDir()
	return &scenario{t: t, tools: tools, tmp: tmp, variables: map[string]string{"tmp": tmp}, background: map[string]*running{}}
}

func (s *scenario) startBroker(properties ...string) {
	s.broker = startBroker(s.t, properties...)
	s.variables["broker"] = s.broker.address
}

func runScenario(t *testing.T, path string) {
	s := newScenario(t)
	datadriven.RunTest(t, path, s.directive)
	for _, m := range s.mismatches { // only now: after the first error the rest of the transcript would not run
		t.Error(m)
	}
}

func (s *scenario) directive(t *testing.T, d *datadriven.TestData) string {
	patterns, commands := s.parseInput(d)
	switch d.Cmd {
	case "broker":
		s.startBroker(commands...)
		return ""
	case "restart":
		if d.HasArg("kill") {
			s.broker.kill(t)
		} else {
			s.broker.stop(t)
		}
		s.broker.start(t)
		return ""
	case "file":
		s.write(d.CmdArgs[0].Key, d.Input)
		return ""
	case "run":
		lines := leaveOut(patterns, s.run(commands))
		if d.HasArg("sort") {
			slices.Sort(lines)
		}
		return s.compare(d, strings.Join(lines, ""))
	case "shape":
		s.judge(d, matchShape(d.Expected, leaveOut(patterns, s.run(commands))))
		return d.Expected
	case "let":
		text := strings.Join(s.runRaw(commands), "")
		match := patterns[0].FindStringSubmatch(text)
		if match == nil {
			d.Fatalf(t, "no match in:\n%s", text)
		}
		s.variables[d.CmdArgs[0].Key] = match[1]
		return ""
	case "until":
		s.until(d, patterns[0], commands)
		return ""
	case "start":
		s.background[d.CmdArgs[0].Key] = s.start(commands[0])
		return ""
	case "wait", "stop":
		r := s.background[d.CmdArgs[0].Key]
		if d.Cmd == "stop" {
			if err := s.tools.stop(r.id); err != nil {
				t.Fatal(err)
			}
		}
		return s.compare(d, strings.Join(s.mask(s.finish(r)), ""))
	}
	d.Fatalf(t, "no such directive")
	return ""
}

// parseInput tells patterns from commands.
func (s *scenario) parseInput(d *datadriven.TestData) (patterns []*regexp.Regexp, commands []string) {
	if d.Cmd == "file" {
		return nil, nil
	}
	for line := range strings.Lines(d.Input) {
		line = strings.TrimSpace(line)
		if len(line) < 2 || line[0] != '/' {
			commands = append(commands, line)
			continue
		}
		pattern, err := regexp.Compile(strings.Trim(line, "/"))
		if err != nil {
			d.Fatalf(s.t, "%v", err)
		}
		patterns = append(patterns, pattern)
	}
	return patterns, commands
}

// compare judges a step by its recorded output, which it returns so that the steps after it run as well.
func (s *scenario) compare(d *datadriven.TestData, got string) string {
	if recording() || got == d.Expected {
		passed.Add(1)
		return got
	}
	s.judge(d, fmt.Sprintf("expected:\n%sgot:\n%s", d.Expected, got))
	return d.Expected
}

// judge counts a step: it has passed when nothing is wrong with it.
func (s *scenario) judge(d *datadriven.TestData, wrong string) {
	if wrong == "" {
		passed.Add(1)
		return
	}
	failed.Add(1)
	s.mismatches = append(s.mismatches, fmt.Sprintf("%s: %s\n%s", d.Pos, d.Input, wrong))
}

func (s *scenario) until(d *datadriven.TestData, pattern *regexp.Regexp, commands []string) {
	pause := time.NewTicker(50 * time.Millisecond)
	defer pause.Stop()
	for deadline := time.Now().Add(untilMax); ; <-pause.C {
		text := strings.Join(s.runRaw(commands), "")
		if pattern.MatchString(text) {
			return
		}
		if time.Now().After(deadline) {
			d.Fatalf(s.t, "still:\n%s", text)
		}
	}
}

// run runs commands and returns the lines that they print, masked.
func (s *scenario) run(commands []string) []string {
	return s.mask(s.runRaw(commands))
}

func (s *scenario) runRaw(commands []string) []string {
	var lines []string
	for _, command := range commands {
		if name, ok := strings.CutPrefix(command, "cat "); ok {
			lines = append(lines, s.read(filepath.Join(s.tmp, name))...)
			continue
		}
		lines = append(lines, s.finish(s.start(command))...)
	}
	return lines
}

// start starts a command.
func (s *scenario) start(command string) *running {
	main, i, err := s.invocation(command)
	if err != nil {
		s.t.Fatalf("%s: %v", command, err)
	}
	r := &running{output: i.Err}
	if exits[main] {
		code, err := runAlone(s.t.Context(), *libs, i)
		if err != nil {
			s.t.Fatalf("%s: %v", command, err)
		}
		status := make(chan int, 1)
		status <- code
		r.status = status
		return r
	}
	if r.id, r.status, err = s.tools.start(i); err != nil {
		s.t.Fatal(err)
	}
	return r
}

// finish waits for a command and returns the lines that it printed, the last of which tells its exit status if that is not 0.
func (s *scenario) finish(r *running) []string {
	status, err := s.tools.wait(r.id, r.status)
	lines := s.read(r.output)
	if err != nil {
		s.t.Fatalf("%v\n%s", err, strings.Join(lines, ""))
	}
	if status != 0 {
		lines = append(lines, fmt.Sprintf("exit %d\n", status))
	}
	return lines
}

func (s *scenario) invocation(command string) (string, invocation, error) {
	for name, value := range s.variables {
		command = strings.ReplaceAll(command, "$"+name, value)
	}
	words, err := splitWords(command)
	if err != nil {
		return "", invocation{}, err
	}
	main, words := words[0], words[1:]
	class, ok := classes[main]
	if !ok {
		return "", invocation{}, fmt.Errorf("no tool %q", main)
	}
	s.outputs++
	output := filepath.Join(s.tmp, fmt.Sprintf("output-%d", s.outputs))
	i := invocation{Main: toolPackage + class, Out: output, Err: output}
	for len(words) > 0 {
		switch words[0] {
		case "<":
			i.In = filepath.Join(s.tmp, words[1])
			words = words[2:]
		case ">":
			i.Out = filepath.Join(s.tmp, words[1])
			words = words[2:]
		default:
			i.Args = append(i.Args, words[0])
			words = words[1:]
		}
	}
	i.Args = s.withBootstrap(main, i.Args)
	return main, i, nil
}

// withBootstrap adds the broker's address to the arguments of a tool that takes it as an option.
func (s *scenario) withBootstrap(main string, args []string) []string {
	option := []string{"--bootstrap-server", s.broker.address}
	switch main {
	case "kafka-dump-log":
		return args
	case "kafka-cluster":
		return append(args, option...) // it is an option of the subcommands
	}
	return append(option, args...)
}

func (s *scenario) write(name, text string) {
	if err := os.WriteFile(filepath.Join(s.tmp, name), []byte(text+"\n"), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// read returns the lines of a file, each with its end.
func (s *scenario) read(path string) []string {
	text, err := os.ReadFile(path)
	if err != nil {
		s.t.Fatal(err)
	}
	lines := slices.Collect(strings.Lines(string(text)))
	if n := len(lines); n > 0 && !strings.HasSuffix(lines[n-1], "\n") {
		lines[n-1] += "\n"
	}
	return lines
}
