package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemark-io/tidemark/broker"
	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/engine"
)

// startFunc starts a broker.
type startFunc func(context.Context, *config.Broker, *slog.Logger) (*broker.Broker, error)

func recoverFlag(command *cobra.Command, fromBucket *bool) {
	command.Flags().BoolVar(fromBucket, "recover", false,
		"with new log directories: bring the cluster back from its object store, and give up what was never uploaded")
}

func starter(fromBucket bool) startFunc {
	if fromBucket {
		return broker.Recover
	}
	return broker.Start
}

// tellRecovery says what a recovery has brought back, if there was one.
func tellRecovery(w io.Writer, b *broker.Broker) {
	if report, ok := b.Recovery(); ok {
		p := newPage(w)
		recoveryView{report}.write(p)
		p.end() //nolint:errcheck // the broker runs, whoever listens
	}
}

// newRecoverCommand recovers a cluster, or says what that would cost.
func newRecoverCommand(a *app) *cobra.Command {
	var file string
	var set []string
	var dryRun bool
	command := &cobra.Command{
		Use:   "recover --config FILE",
		Short: "Bring a cluster back from its object store alone",
		Long: "Bring a cluster back from its object store alone, when every log directory is lost.\n\n" +
			"With new log directories the broker takes over all topics, configs, group offsets and records that were uploaded, under a new " +
			"incarnation of the cluster: brokers and directories of before are refused from then on. It prints which offsets may be lost, " +
			"and stops; start it with `tidemark broker` then. After a clean stop of the only broker nothing is lost, and `tidemark broker` alone is enough.",
		Example: "  tidemark recover --config broker.properties --dry-run\n  tidemark recover --config broker.properties",
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			settings, err := parseFile(command.ErrOrStderr(), file, set)
			if err != nil {
				return err
			}
			report, err := recoverOnce(command.Context(), settings, dryRun)
			if err != nil {
				return err
			}
			return a.print(command, recoveryView{report})
		},
	}
	command.Flags().StringVar(&file, "config", "", "properties or YAML file with the settings")
	command.Flags().StringArrayVar(&set, "set", nil, "a setting, key=value; may be repeated")
	command.Flags().BoolVar(&dryRun, "dry-run", false, "print what would be lost, and change nothing")
	command.MarkFlagRequired("config") //nolint:errcheck // the flag exists: it is defined above
	return command
}

// recoverOnce runs a broker for as long as it takes to recover.
func recoverOnce(ctx context.Context, settings *config.Broker, dryRun bool) (report engine.RecoveryReport, err error) {
	if dryRun {
		return broker.RecoveryOutlook(ctx, settings)
	}
	recovered := false
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	err = serve(ctx, settings, broker.Recover, func(b *broker.Broker) {
		report, recovered = b.Recovery()
		stop()
	})
	if err == nil && !recovered {
		err = fmt.Errorf("nothing was recovered: %w (%s)", engine.ErrNothingToRecover, strings.Join(settings.LogDirs, ", "))
	}
	return report, err
}

// recoveryView is the report of a recovery.
type recoveryView struct{ engine.RecoveryReport }

func (v recoveryView) write(p *page) {
	p.heading()
	p.row("cluster", v.ClusterID)
	p.row("incarnation", v.Incarnation)
	p.row("as of", time.UnixMilli(v.CreatedMs).UTC().Format(time.RFC3339))
	p.row("topics", v.Topics)
	p.row("partitions", v.Partitions)
	p.row("in the object store", fmt.Sprintf("%d segments, %d bytes", v.Segments, v.Bytes))
	if v.Complete {
		p.row("lost", "nothing")
		return
	}
	p.heading("TOPIC", "PARTITION", "LOST FROM", "NEW RECORDS FROM", "IN THE OBJECT STORE")
	for _, lost := range v.LostRuns() {
		there := "everything before"
		if lost.Absent {
			there = "nothing"
		}
		p.row(lost.Topic, lost.Partitions(), int64(lost.First), int64(lost.Next), there)
	}
}
