package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// suite is one client's own tests, which a script of the rigs fetches, runs and compares with what they did on Apache Kafka.
type suite struct {
	name        string   // of the script
	mode        string   // what part of its tests the script runs: fast or full
	quick       bool     // part of a quick run
	only        string   // the steps that a quick run takes of it, in place of all
	address     string   // where the broker has to listen; a free port if empty
	settings    []string // the broker's, after suiteSettings
	environment []string // the script's
}

// suites are in the order in which a new broker comes to pass them.
var suites = []suite{
	{name: "kcat", mode: "full", quick: true},
	{name: "kafka-python", mode: "full", quick: true},
	{name: "kafka-go", mode: "full", address: "127.0.0.1:9092"}, // a test looks for this port
	{name: "kafka-workloads", mode: "fast", quick: true, only: "verifiable|perf|end_to_end"},
	// 0118 takes for granted that two members who come one after the other begin in one generation.
	{name: "librdkafka", mode: "fast", settings: []string{"group.initial.rebalance.delay.ms=300"}},
	// A test of transactions, which waits for ever without them, has the run cut at its limit; all the others take 100 s.
	{name: "franz-kgo", mode: "fast", environment: []string{"RIG_LIMIT=180"}},
	// As sarama's own environment has it: a test asks twice within 10 ms for a topic that is not to exist.
	{name: "sarama", mode: "full", settings: []string{"auto.create.topics.enable=false"}},
	// These are at home on brokers from 0 on with Kafka's defaults, and some take groups with short sessions, or a topic of offsets with
	// one partition, for granted.
	{
		name: "kafka-clients-it", mode: "fast",
		settings:    []string{"node.id=0", "num.partitions=1", "offsets.topic.num.partitions=1", "group.min.session.timeout.ms=100"},
		environment: []string{"RIG_TEST_TIMEOUT=60s", "CLASSES=" + strings.Join(clientClasses, " ")},
	},
}

// suiteSettings are the layout that the suites were run with on Apache Kafka, as far as one broker has it.
var suiteSettings = []string{
	"num.partitions=4",
	"offsets.topic.num.partitions=5",
	"group.initial.rebalance.delay.ms=0",
	"tier.enable=false",
}

// clientClasses are the classes of Kafka's own client tests but for those that are about share groups.
var clientClasses = []string{
	"producer.ProducerIntegrationTest",
	"producer.ProducerCompressionTest",
	"producer.ProducerFailureHandlingTest",
	"producer.ProducerSendWhileDeletionTest",
	"producer.ProducerIdExpirationTest",
	"TransactionsExpirationTest",
	"TransactionsWithMaxInFlightOneTest",
	"MetricsDuringTopicCreationDeletionTest",
	"admin.AutoTopicCreationTest",
	"admin.ListOffsetsIntegrationTest",
	"admin.DeleteTopicTest",
	"admin.DynamicGroupConfigIntegrationTest",
	"admin.DescribeAuthorizedOperationsTest",
	"admin.AdminFenceProducersTest",
	"admin.DescribeProducersWithBrokerIdTest",
	"admin.ClientTelemetryTest",
	"admin.StaticBrokerConfigTest",
	"admin.DescribeFeaturesTest",
	"admin.ConcurrentListOffsetsRequestTest",
	"consumer.PlaintextConsumerAssignTest",
	"consumer.PlaintextConsumerPollTest",
	"consumer.PlaintextConsumerTest",
	"consumer.ConsumerWithLegacyMessageFormatIntegrationTest",
	"consumer.ConsumerBounceTest",
	"consumer.ConsumerTopicCreationTest",
	"consumer.PlaintextConsumerCloseTest",
	"consumer.PlaintextConsumerCommitTest",
	"consumer.PlaintextConsumerCallbackTest",
	"consumer.PlaintextConsumerSubscriptionTest",
	"consumer.ConsumerIntegrationTest",
	"consumer.PlaintextConsumerFetchTest",
}

const (
	suiteMax   = time.Hour        // of a suite, installation included
	playEndMax = 20 * time.Second // of a script that was told to end
)

// pick returns the suites that a run takes: quick, all, none, or those of a list of names.
func pick(names string) ([]suite, error) {
	if names == "none" {
		return nil, nil
	}
	var list []suite
	named := strings.Split(names, ",")
	for _, s := range suites {
		switch {
		case names == "quick" && s.quick:
		case names == "all" || slices.Contains(named, s.name):
			s.only = ""
		default:
			continue
		}
		list = append(list, s)
	}
	if names != "quick" && names != "all" && len(list) != len(named) {
		return nil, fmt.Errorf("there are not all of the suites %s", names)
	}
	return list, nil
}

// attempts is how often a suite runs when a test that is listed as unstable fails: it has to pass in one of them.
const attempts = 3

// run runs the suite and judges what comes of it. The logs of its last run stay below results.
func (s suite) run(ctx context.Context, rigs, binary, results string, list []*expectation) (tally, error) {
	ctx, cancel := context.WithTimeout(ctx, suiteMax)
	defer cancel()
	results, err := filepath.Abs(results) // scripts change their folder
	if err != nil {
		return tally{}, err
	}
	var unsteady []string
	for attempt := 1; ; attempt++ {
		o, complaints, err := s.once(ctx, rigs, binary, results)
		if err != nil {
			return tally{}, err
		}
		count := judgeSuite(os.Stdout, s.name, o, list, s.only == "")
		for _, line := range complaints {
			count.failed++
			fmt.Fprintf(os.Stdout, "NEW  %s: the broker's log: %s\n", s.name, line)
		}
		unsteady = stillUnsteady(unsteady, attempt == 1, o, s.name, list)
		if len(unsteady) == 0 || count.failed > 0 {
			return count, nil
		}
		fmt.Fprintf(os.Stdout, "%s: unstable, did not pass in run %d: %s\n", s.name, attempt, strings.Join(unsteady, ", "))
		if attempt == attempts {
			count.failed += len(unsteady)
			return count, nil
		}
	}
}

// once lets the suite's script loose on a broker of its own. Complaints are lines of the broker's log that should not be there.
func (s suite) once(ctx context.Context, rigs, binary, results string) (o outcome, complaints []string, err error) {
	folder := filepath.Join(results, s.name)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return o, nil, err
	}
	data, err := os.MkdirTemp("", "tidemark-peers-")
	if err != nil {
		return o, nil, err
	}
	defer os.RemoveAll(data)
	b, err := newBroker(binary, data, filepath.Join(folder, "broker.log"))
	if err != nil {
		return o, nil, err
	}
	b.Address = cmp.Or(s.address, b.Address)
	b.Settings = slices.Concat(suiteSettings, []string{"advertised.listeners=PLAINTEXT://" + b.Address}, s.settings)
	if err := b.Start(ctx); err != nil {
		return o, nil, err
	}
	report, playErr := s.play(ctx, rigs, results, b.Address)
	if err := b.stop(); err != nil {
		return o, nil, err
	}
	o, err = parseOutcome(report, filepath.Join(folder, "results.tsv"))
	if err != nil {
		return o, nil, fmt.Errorf("%s did not come to its end (%w): %w", s.name, playErr, err)
	}
	if err := o.passLate(filepath.Join(folder, "t.json")); err != nil {
		return o, nil, err
	}
	return o, b.complaints(), nil
}

// play runs the script, shows what it prints and returns it.
func (s suite) play(ctx context.Context, rigs, results, address string) (string, error) {
	c := command(ctx, filepath.Join(rigs, "clients", s.name+".sh"), address, s.mode)
	c.Env = slices.Concat(os.Environ(), []string{"RIG_OUT=" + results, "ONLY=" + s.only}, s.environment)
	var out strings.Builder
	c.Stdout = io.MultiWriter(os.Stdout, &out)
	// Scripts start processes of their own, which have to end with them.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGTERM) }
	c.WaitDelay = playEndMax
	err := c.Run() // fails on differences too; a broken run is one without the closing line
	return out.String(), err
}
