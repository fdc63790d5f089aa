// Command tidemark is the broker and the tool for people who run it. Commands that talk to a cluster speak the public
// protocol, so they work with any Kafka; `log dump` reads files.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second signal ends the process
	a := newApp(os.Getenv)
	root := newRoot(a)
	cmd, err := root.ExecuteContextC(ctx)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errReported):
		return 1
	case a.started:
		fmt.Fprintln(os.Stderr, "tidemark: "+explain(err, a.bootstrap))
		return 1
	default:
		fmt.Fprintf(os.Stderr, "tidemark: %v\nSee `%s --help`.\n", err, cmd.CommandPath())
		return 2
	}
}
