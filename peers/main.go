// Command peers starts a broker, lets the project's rigs (a folder of its own beside this repository) loose on it, and judges
// what they report against the lists of known differences in this folder.
//
// differ compares the answers to some 245 scripted scenarios with those recorded from Apache Kafka. Each difference that
// is known stands in differ-allow.tsv with the reason for it, or the issue that removes it; a difference that is not listed
// fails, and so does an entry that nothing needs any more.
//
//	go run ./peers -rigs ../shared/rigs -broker bin/tidemark
//	go run ./peers -judge report.txt       judge what differ printed before
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
)

func main() {
	rigs := flag.String("rigs", "../shared/rigs", "folder of the rigs")
	binary := flag.String("broker", "bin/tidemark", "the broker's binary")
	only := flag.String("only", "", "scenarios to run, as differ takes them, in place of all areas; unused entries of the list are then no failure")
	allow := flag.String("allow", "peers/differ-allow.tsv", "known differences")
	report := flag.String("judge", "", "judge this report and start nothing")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ok, err := run(ctx, *rigs, *binary, *only, *allow, *report)
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
	}
	if err != nil || !ok {
		stop()
		os.Exit(1)
	}
}

// areas are the scenarios of what is built. The others (transactions, the new group protocols, security and cluster
// administration) join with what they are about.
const areas = "apiversions/,metadata/,topics/,configs/,produce/,idempotence/,fetch/,offsets/,groups/,malformed/,reports/"

func run(ctx context.Context, rigs, binary, only, allow, report string) (bool, error) {
	text, err := os.ReadFile(allow)
	if err != nil {
		return false, err
	}
	known, err := parseAllowList(string(text))
	if err != nil {
		return false, fmt.Errorf("%s: %w", allow, err)
	}
	var printed []byte
	if report != "" {
		printed, err = os.ReadFile(report)
	} else {
		printed, err = differ(ctx, rigs, binary, only)
	}
	if err != nil {
		return false, err
	}
	return judge(os.Stdout, string(printed), known, only == ""), nil
}

// differ builds the rig, starts a broker with the settings that the recorded answers were given under, and returns what the
// rig printed.
func differ(ctx context.Context, rigs, binary, only string) ([]byte, error) {
	folder, err := os.MkdirTemp("", "tidemark-peers-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	rig := filepath.Join(folder, "differ")
	source := filepath.Join(rigs, "differ")
	if err := command(ctx, "go", "-C", source, "build", "-o", rig, ".").Run(); err != nil {
		return nil, fmt.Errorf("build differ: %w", err)
	}
	b, err := startBroker(ctx, binary, folder)
	if err != nil {
		return nil, err
	}
	check := command(ctx, rig, "check", "-v", "-dut", b.address, "-only", cmp.Or(only, areas),
		"-scenarios", filepath.Join(source, "scenarios"), "-golden", filepath.Join(source, "golden"))
	var out strings.Builder
	check.Stdout = &out
	runErr := check.Run() // fails on differences too; a broken run is one without the closing line
	if err := b.stop(); err != nil {
		return nil, err
	}
	if _, found := closingLine(out.String()); !found {
		return nil, fmt.Errorf("differ did not come to its end (%w)\n%s", runErr, out.String())
	}
	_, _ = io.WriteString(os.Stdout, out.String())
	return []byte(out.String()), nil
}
