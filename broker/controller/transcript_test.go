package controller

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
)

var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func newController(t interface {
	Helper()
	Fatal(args ...any)
}, settings ...string,
) *Controller {
	t.Helper()
	parsed, _, err := config.Parse([]config.Source{{Format: config.Flags, Name: "test", Pairs: append([]string{"node.id=1", "log.dirs=/d", "store.url=mem://", "tier.enable=false"}, settings...)}})
	if err != nil {
		t.Fatal(err)
	}
	return New(Options{ClusterID: "cluster", Config: parsed, Rand: rand.New(rand.NewPCG(1, 2))})
}

var changes = map[string]func() metadata.Change{
	"create-topics":     func() metadata.Change { return new(metadata.CreateTopics) },
	"delete-topics":     func() metadata.Change { return new(metadata.DeleteTopics) },
	"create-partitions": func() metadata.Change { return new(metadata.CreatePartitions) },
	"alter":             func() metadata.Change { return new(metadata.IncrementalAlterConfigs) },
	"replace":           func() metadata.Change { return new(metadata.AlterConfigs) },
	"update-features":   func() metadata.Change { return new(metadata.UpdateFeatures) },
	"producer-ids":      func() metadata.Change { return new(metadata.AllocateProducerIDs) },
	"removal-done":      func() metadata.Change { return new(metadata.RemovalDone) },
	"recover":           func() metadata.Change { return new(metadata.RecoverCluster) },
	"unregister":        func() metadata.Change { return new(metadata.UnregisterBroker) },
	"alter-partition":   func() metadata.Change { return new(metadata.AlterPartition) },
	"assign":            func() metadata.Change { return new(metadata.AssignReplicasToDirs) },
}

// transcript drives one controller. It prints the records that come out, then the answer.
//
//	new [set=key=value]...               a controller of broker 1 that is not active
//	elect epoch=N                        the role on the image so far
//	register id=N [incarnation=] [boot=] [dirs=a,b] [clean=N] [rack=] [cluster=] [cluster-incarnation=N]
//	beat id=N [offset=N] [epoch=N] [shutdown] [fence] [offline=a,b]
//	broker id=N...                       registers and unfences brokers, prints nothing
//	advance by=DURATION                  moves the clock, then ticks
//	CHANGE                               one of changes, as JSON; "quiet" prints neither records nor answer
//	topic name=T                         its partitions
//	image                                configs, brokers, features
//
// In bodies and answers "T:" stands for the id of topic T, LONG for 250 letters.
type transcript struct {
	c     *Controller
	now   time.Time
	names map[wire.TopicID]string
}

func TestTranscripts(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			run := &transcript{now: start, names: map[wire.TopicID]string{}}
			datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return run.do(t, d) })
		})
	}
}

func (r *transcript) do(t *testing.T, d *datadriven.TestData) string {
	id, offset, epoch, clean, clusterIncarnation := 0, -1, -1, -1, 0
	incarnation, boot, rack, cluster, by, name := "i", "boot", "", "cluster", "0s", ""
	d.MaybeScanArgs(t, "offset", &offset)
	d.MaybeScanArgs(t, "epoch", &epoch)
	d.MaybeScanArgs(t, "clean", &clean)
	d.MaybeScanArgs(t, "incarnation", &incarnation)
	d.MaybeScanArgs(t, "boot", &boot)
	d.MaybeScanArgs(t, "cluster-incarnation", &clusterIncarnation)
	d.MaybeScanArgs(t, "rack", &rack)
	d.MaybeScanArgs(t, "cluster", &cluster)
	d.MaybeScanArgs(t, "by", &by)
	d.MaybeScanArgs(t, "name", &name)
	if d.Cmd != "broker" {
		d.MaybeScanArgs(t, "id", &id)
	}
	switch d.Cmd {
	case "new":
		r.c = newController(t, values(d, "set")...)
		return ""
	case "elect":
		image := metadata.Empty()
		if r.c.Active() {
			image = r.c.Image()
		}
		return r.print(r.c.Elected(r.now, image, wire.LeaderEpoch(epoch)), nil)
	case "register":
		change := registration(id, incarnation, boot, rack, cluster, clean, values(d, "dirs"))
		change.ClusterIncarnation = int64(clusterIncarnation)
		return r.step(t, d, change)
	case "beat":
		if offset < 0 {
			offset = int(r.c.Image().Offset())
		}
		if b := r.c.Image().Broker(wire.BrokerID(id)); epoch < 0 && b != nil {
			epoch = int(b.Epoch)
		}
		return r.step(t, d, &metadata.BrokerHeartbeat{
			BrokerID: wire.BrokerID(id), BrokerEpoch: wire.BrokerEpoch(epoch), MetadataOffset: wire.Offset(offset),
			WantShutdown: d.HasArg("shutdown"), WantFence: d.HasArg("fence"), OfflineDirectories: values(d, "offline"),
		})
	case "broker":
		for _, text := range values(d, "id") {
			_, _ = fmt.Sscan(text, &id)
			r.c.Step(r.now, registration(id, incarnation, boot, rack, cluster, clean, values(d, "dirs")))
			b := r.c.Image().Broker(wire.BrokerID(id))
			r.c.Step(r.now, &metadata.BrokerHeartbeat{BrokerID: b.ID, BrokerEpoch: b.Epoch, MetadataOffset: r.c.Image().Offset()})
		}
		return ""
	case "advance":
		duration, err := time.ParseDuration(by)
		if err != nil {
			t.Fatal(err)
		}
		r.now = r.now.Add(duration)
		out := ""
		if r.c.Isolated(r.now) {
			out = "isolated\n"
		}
		out += r.print(r.c.Tick(r.now), nil)
		if wake := r.c.NextWake(); !wake.IsZero() {
			out += fmt.Sprintf("next wake in %v\n", wake.Sub(r.now))
		}
		return out
	case "topic":
		topic := r.c.Image().Topic(name)
		if topic == nil {
			return "none"
		}
		var out strings.Builder
		for i, p := range topic.Partitions {
			fmt.Fprintf(&out, "%d: replicas %v in %q, isr %v, leader %d, epochs %d %d\n", i, p.Replicas, p.Directories, p.ISR, p.Leader, p.LeaderEpoch, p.PartitionEpoch)
		}
		return out.String()
	case "image":
		var out strings.Builder
		for line := range strings.SplitSeq(strings.ReplaceAll(string(r.c.Image().Snapshot()), `{"type"`, "\n{\"type\""), "\n") {
			if strings.HasPrefix(line, `{"type":"Config"`) || strings.HasPrefix(line, `{"type":"Broker`) || strings.HasPrefix(line, `{"type":"Feature`) ||
				strings.HasPrefix(line, `{"type":"Removal`) || strings.HasPrefix(line, `{"type":"ClusterRecovered`) {
				out.WriteString(strings.TrimRight(line, ",]}") + "\n")
			}
		}
		return out.String()
	}
	empty, ok := changes[d.Cmd]
	if !ok {
		t.Fatalf("unknown command %s", d.Cmd)
	}
	change := empty()
	input := strings.ReplaceAll(d.Input, "LONG", strings.Repeat("x", 250))
	for topic := range r.c.Image().Topics("") {
		input = strings.ReplaceAll(input, `"`+topic.Name+`:"`, `"`+topic.ID.String()+`"`)
	}
	decoder := json.NewDecoder(strings.NewReader(input))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(change); err != nil {
		t.Fatalf("%s: %v", d.Pos, err)
	}
	return r.step(t, d, change)
}

func values(d *datadriven.TestData, key string) []string {
	var list []string
	for _, arg := range d.CmdArgs {
		if arg.Key == key {
			for _, v := range arg.Vals {
				list = append(list, strings.Split(v, ",")...)
			}
		}
	}
	return list
}

func registration(id int, incarnation, boot, rack, cluster string, clean int, directories []string) *metadata.RegisterBroker {
	if directories == nil {
		directories = []string{fmt.Sprintf("d%d", id)}
	}
	return &metadata.RegisterBroker{
		BrokerID: wire.BrokerID(id), ClusterID: cluster, Incarnation: incarnation, BootID: boot, Rack: rack,
		Directories: directories, CleanStopEpoch: wire.BrokerEpoch(clean),
		Listeners: []metadata.Listener{{Name: "PLAINTEXT", Host: "h", Port: 9092, Protocol: "PLAINTEXT"}},
		Features:  metadata.SupportedFeatures(),
	}
}

func (r *transcript) step(t *testing.T, d *datadriven.TestData, change metadata.Change) string {
	before := r.c.Image()
	outcome := r.c.Step(r.now, change)
	if want := before.Offset() + wire.Offset(len(outcome.Records)); outcome.Offset != want || r.c.Image().Offset() != want {
		t.Fatalf("%s: offset %d of the outcome, %d of the image, want %d", d.Pos, outcome.Offset, r.c.Image().Offset(), want)
	}
	text := r.print(outcome.Records, outcome.Answer) // and learn the topics' names
	if d.HasArg("quiet") {
		return ""
	}
	return text
}

func (r *transcript) print(records []metadata.Record, answer metadata.Answer) string {
	var out strings.Builder
	for _, record := range records {
		if topic, ok := record.(*metadata.TopicRecord); ok {
			r.names[topic.ID] = topic.Name
		}
		data, err := metadata.MarshalRecord(record)
		if err != nil {
			return err.Error()
		}
		text := strings.Replace(string(data), `"version":0,`, "", 1)
		fmt.Fprintf(&out, "%s\n", text)
	}
	if answer != nil {
		data, err := json.Marshal(answer)
		if err != nil {
			return err.Error()
		}
		text := strings.NewReplacer(`{"topics":[`, "", `{"resources":[`, "", `},{"name"`, "},\n{\"name\"", `},{"resource"`, "},\n{\"resource\"",
			`"partitions":[{"topicId"`, "\"partitions\":[\n{\"topicId\"", `},{"topicId"`, "},\n{\"topicId\"").Replace(string(data))
		fmt.Fprintf(&out, "= %s\n", text)
	}
	text := strings.ReplaceAll(out.String(), strings.Repeat("x", 250), "LONG")
	for id, name := range r.names {
		text = strings.ReplaceAll(text, `"`+id.String()+`"`, `"`+name+`:"`)
	}
	return text
}
