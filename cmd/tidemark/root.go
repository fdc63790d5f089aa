package main

import (
	"context"
	"math"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// app is what all commands share.
type app struct {
	bootstrap []string
	json      bool
	timeout   time.Duration
	started   bool // the command line was understood
	now       func() time.Time
}

const defaultBootstrap = "127.0.0.1:9092"

func newApp(getenv func(string) string) *app {
	bootstrap := getenv("TIDEMARK_BOOTSTRAP")
	if bootstrap == "" {
		bootstrap = defaultBootstrap
	}
	return &app{bootstrap: strings.Split(bootstrap, ","), now: time.Now}
}

// The groups that the help lists commands under.
const (
	groupServer  = "server"
	groupData    = "data"
	groupCluster = "cluster"
	groupOffline = "offline"
)

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:           "tidemark",
		Short:         "A message broker that speaks the Kafka protocol, and the tool to work with it",
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       buildVersion(),
	}
	flags := root.PersistentFlags()
	flags.StringSliceVar(&a.bootstrap, "bootstrap", a.bootstrap, "brokers to begin with, host:port (environment: TIDEMARK_BOOTSTRAP)")
	flags.BoolVar(&a.json, "json", false, "print JSON for scripts in place of tables")
	flags.DurationVar(&a.timeout, "timeout", 15*time.Second, "how long to wait for the cluster, or for one answer of the object store")

	root.AddGroup(
		&cobra.Group{ID: groupServer, Title: "Running a broker:"},
		&cobra.Group{ID: groupData, Title: "Records, topics, groups:"},
		&cobra.Group{ID: groupCluster, Title: "The cluster:"},
		&cobra.Group{ID: groupOffline, Title: "Without a broker:"},
	)
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add(groupServer, newDevCommand(), newBrokerCommand(), newRecoverCommand(a), newServeCommand(a))
	add(groupData, topicCommand(a), produceCommand(a), consumeCommand(a), groupCommand(a), offsetCommand(a), benchCommand(a))
	add(groupCluster, clusterCommand(a), configCommand(a), apiVersionsCommand(a))
	add(groupOffline, logCommand(a), metadataCommand(a), tierCommand(a), storeCheckCommand(a))
	a.noteStart(root)
	return root
}

// buildVersion is the version that Go stamps on what it builds: a tag, or the commit and its time.
func buildVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return info.Main.Version + " " + info.GoVersion
}

// noteStart makes each command note that it was understood: what cobra finds wrong before is a mistake of the command line.
func (a *app) noteStart(c *cobra.Command) {
	for _, child := range c.Commands() {
		a.noteStart(child)
	}
	if run := c.RunE; run != nil {
		c.RunE = func(cmd *cobra.Command, args []string) error {
			a.started = true
			return run(cmd, args)
		}
	}
}

// parent is a command that only holds others.
func parent(use, short string, children ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	c.AddCommand(children...)
	return c
}

// clientOptions are those of every connection.
func (a *app) clientOptions(extra ...kgo.Opt) []kgo.Opt {
	return append([]kgo.Opt{
		kgo.SeedBrokers(a.bootstrap...),
		kgo.ClientID("tidemark"),
		kgo.DialTimeout(min(a.timeout, 5*time.Second)),
		kgo.RetryTimeout(a.timeout),
	}, extra...)
}

// admin runs fn with an admin client and a deadline, which the brokers are told, too.
func (a *app) admin(ctx context.Context, fn func(context.Context, *kadm.Client) error) error {
	return a.client(ctx, func(ctx context.Context, client *kgo.Client) error {
		admin := kadm.NewClient(client)
		admin.SetTimeoutMillis(int32(min(a.timeout.Milliseconds(), math.MaxInt32)))
		return fn(ctx, admin)
	})
}

func (a *app) client(ctx context.Context, fn func(context.Context, *kgo.Client) error) error {
	client, err := kgo.NewClient(a.clientOptions()...)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	return fn(ctx, client)
}
