// Command tidemark is the broker and the tool for people who run it. Commands that talk to a cluster speak the public
// protocol, so they work with any Kafka that asks for no TLS and no login; `log dump` reads files.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second signal ends the process
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv))
}

// run is main with its surroundings as arguments. It returns the exit status: 1 when the command failed, 2 when it was not
// understood, or its object store was of no use.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, getenv func(string) string) int {
	a := newApp(getenv)
	root := newRoot(a)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errReported):
		return 1
	case errors.As(err, new(unusable)):
		fmt.Fprintf(stderr, "tidemark: %v\n", err)
		return 2
	case a.started:
		fmt.Fprintln(stderr, "tidemark: "+explain(err, a.bootstrap))
		return 1
	default:
		fmt.Fprintf(stderr, "tidemark: %v\nSee `%s --help`.\n", err, cmd.CommandPath())
		return 2
	}
}
