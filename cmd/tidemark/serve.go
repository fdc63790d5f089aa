package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemark-io/tidemark/broker"
	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/tier/object/storeurl"
)

// stopTimeout is how long a stop may take beside its last uploads, which have tier.shutdown.upload.ms.
const stopTimeout = 30 * time.Second

// newBrokerCommand runs a broker from a configuration file.
func newBrokerCommand() *cobra.Command {
	var file string
	var set []string
	var printConfig, fromBucket bool
	command := &cobra.Command{
		Use:   "broker --config FILE",
		Short: "Run a broker",
		Long: "Run a broker with the settings of a properties or YAML file. TIDEMARK_* variables override the file " +
			"(TIDEMARK_LOG_SEGMENT_BYTES is log.segment.bytes), --set overrides both.",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			settings, err := parseFile(command.ErrOrStderr(), file, set)
			if err != nil {
				return err
			}
			if printConfig {
				return printSettings(command.OutOrStdout(), settings)
			}
			return serve(command.Context(), settings, starter(fromBucket), func(b *broker.Broker) { tellRecovery(command.ErrOrStderr(), b) })
		},
	}
	command.Flags().StringVar(&file, "config", "", "properties or YAML file with the settings")
	command.Flags().StringArrayVar(&set, "set", nil, "a setting, key=value; may be repeated")
	recoverFlag(command, &fromBucket)
	command.Flags().BoolVar(&printConfig, "print-config", false, "print the effective settings with their sources, and exit")
	command.MarkFlagRequired("config") //nolint:errcheck // the flag exists: it is defined above
	return command
}

// newDevCommand runs one broker that needs no settings.
func newDevCommand() *cobra.Command {
	var listen, admin, data, store string
	var set []string
	var fromBucket bool
	command := &cobra.Command{
		Use:   "dev",
		Short: "Run one broker on this machine, ready for any Kafka client",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			dir, err := filepath.Abs(data)
			if err != nil {
				return err
			}
			if store == "" {
				store = "file://" + filepath.ToSlash(filepath.Join(dir, "store"))
			}
			settings, err := parse(command.ErrOrStderr(), devDefaults(listen, admin, dir, store), set)
			if err != nil {
				return err
			}
			return serve(command.Context(), settings, starter(fromBucket), func(b *broker.Broker) {
				tellRecovery(command.ErrOrStderr(), b)
				greet(command.OutOrStdout(), b, settings)
			})
		},
	}
	command.Flags().StringVar(&listen, "listen", "127.0.0.1:9092", "address for Kafka clients")
	command.Flags().StringVar(&admin, "admin", "127.0.0.1:9644", "HTTP address of metrics, health and profiles")
	command.Flags().StringVar(&data, "data", "tidemark-data", "folder for the logs and, unless --store says otherwise, the object store")
	command.Flags().StringVar(&store, "store", "", "URL of the object store: "+storeurl.Forms)
	command.Flags().StringArrayVar(&set, "set", nil, "a setting, key=value; may be repeated")
	recoverFlag(command, &fromBucket)
	return command
}

// parseFile is parse for a properties or YAML file.
func parseFile(stderr io.Writer, file string, set []string) (*config.Broker, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	source := config.Source{Format: config.Properties, Name: file, Text: string(text)}
	if ext := strings.ToLower(filepath.Ext(file)); ext == ".yaml" || ext == ".yml" {
		source.Format = config.YAML
	}
	return parse(stderr, source, set)
}

// devDefaults are the settings of a cluster of one: Kafka's defaults, but for what can't hold with a single broker.
func devDefaults(listen, admin, data, store string) config.Source {
	pairs := []string{
		"node.id=1",
		"listeners=PLAINTEXT://" + listen,
		"admin.listener=" + admin,
		"cluster.listener=127.0.0.1:0",
		"log.dirs=" + filepath.Join(data, "logs"),
		"store.url=" + store,
		"offsets.topic.replication.factor=1",
	}
	return config.Source{Format: config.Properties, Name: "tidemark dev", Text: strings.Join(pairs, "\n")}
}

// parse reads the settings from a file's text, the environment and the command line, and prints the warnings.
func parse(stderr io.Writer, file config.Source, set []string) (*config.Broker, error) {
	settings, warnings, err := config.Parse([]config.Source{
		file,
		{Format: config.Environment, Name: "environment", Pairs: os.Environ()},
		{Format: config.Flags, Name: "--set", Pairs: set},
	})
	for _, w := range warnings {
		fmt.Fprintln(stderr, "warning:", w)
	}
	return settings, err
}

func printSettings(w io.Writer, settings *config.Broker) error {
	for _, s := range settings.Settings() {
		if _, err := fmt.Fprintf(w, "%s=%s\t# %s\n", s.Name, s.Value, s.Source); err != nil {
			return err
		}
	}
	return nil
}

// serve runs a broker until a signal ends it, or it can't go on. A second signal ends the process at once.
func serve(ctx context.Context, settings *config.Broker, start startFunc, started func(*broker.Broker)) error {
	tuneMemory()
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
	signals, release := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer release()
	context.AfterFunc(signals, release)

	b, err := start(signals, settings, logger) // as long as it takes: a recovery reads all that was not flushed, or every manifest
	if err != nil {
		return err
	}
	started(b)
	select {
	case <-signals.Done():
	case <-b.Failed():
	}
	release()
	logger.Info("stopping")
	uploads := time.Duration(settings.TierShutdownUploadMs) * time.Millisecond
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), uploads+stopTimeout)
	defer cancel()
	return errors.Join(b.Failure(), b.Close(stopping))
}

// greet says what to type next.
func greet(w io.Writer, b *broker.Broker, settings *config.Broker) {
	at := b.Addresses()[0]
	fmt.Fprintf(w, `Tidemark is ready: one broker, cluster %s

  Kafka clients   %s
  metrics, health http://%s/metrics
  data            %s
  object store    %s

The offsets topic has one replica. Try:

  echo hello | kcat -b %s -t greetings -P
  kcat -b %s -t greetings -C -e
  kafka-console-consumer.sh --bootstrap-server %s --topic greetings --from-beginning
  %s topic list --bootstrap %s

Ctrl-C stops it.
`, b.ClusterID(), at, b.AdminAddress(), settings.LogDirs[0], settings.StoreURL, at, at, at, os.Args[0], at)
}
