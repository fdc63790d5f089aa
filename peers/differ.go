package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// areas are the scenarios of what is built. The others (transactions, the new group protocols, security and cluster
// administration) join with what they are about.
const areas = "apiversions/,metadata/,topics/,configs/,produce/,idempotence/,fetch/,offsets/,groups/,malformed/,reports/"

// differSettings are those of the node whose answers were recorded; dev has the rest of them by itself.
var differSettings = []string{
	"num.partitions=1",
	"default.replication.factor=1",
	"offsets.topic.replication.factor=1",
	"transaction.state.log.replication.factor=1",
	"transaction.state.log.min.isr=1",
	"min.insync.replicas=1",
	"group.initial.rebalance.delay.ms=0",
	"tier.enable=false",
}

// differ builds the rig, starts a broker, and returns what the rig printed.
func differ(ctx context.Context, rigs, binary, only string) (string, error) {
	folder, err := os.MkdirTemp("", "tidemark-peers-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(folder)
	rig := filepath.Join(folder, "differ")
	source := filepath.Join(rigs, "differ")
	if err := command(ctx, "go", "-C", source, "build", "-o", rig, ".").Run(); err != nil {
		return "", fmt.Errorf("build differ: %w", err)
	}
	b, err := newBroker(binary, filepath.Join(folder, "data"), filepath.Join(folder, "broker.log"), differSettings...)
	if err != nil {
		return "", err
	}
	if err := b.Start(ctx); err != nil {
		return "", err
	}
	check := command(ctx, rig, "check", "-v", "-dut", b.Address, "-only", cmp.Or(only, areas),
		"-scenarios", filepath.Join(source, "scenarios"), "-golden", filepath.Join(source, "golden"))
	var out strings.Builder
	check.Stdout = &out
	runErr := check.Run() // fails on differences too; a broken run is one without the closing line
	if err := b.stop(); err != nil {
		return "", err
	}
	if _, found := closingLine(out.String()); !found {
		return "", fmt.Errorf("differ did not come to its end (%w)\n%s", runErr, out.String())
	}
	_, _ = io.WriteString(os.Stdout, out.String())
	return out.String(), nil
}
