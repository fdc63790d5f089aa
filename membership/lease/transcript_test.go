package lease

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/faultstore"
	"github.com/tidemark-io/tidemark/tier/object/memstore"
)

var epochStart = time.UnixMilli(1_800_000_000_000)

// at is a time of a transcript or simulation, in milliseconds since its beginning.
func at(ms int64) time.Time { return epochStart.Add(time.Duration(ms) * time.Millisecond) }

func since(t time.Time) string {
	if t.Before(epochStart) {
		return "at once"
	}
	return strconv.FormatInt(t.Sub(epochStart).Milliseconds(), 10)
}

// transcript runs the commands of testdata/*.txt:
//
//	node id=1 [run=a] [former=b] [chain=unknown|EPOCH] [ttl=MS] [renew=MS]   a broker; it jitters by half
//	step id=1 at=MS [tick | dead=1/a | chain=EPOCH | resign[=MS]]    an event, then every action until there is none
//	fault id=1 [put=FAULT] [get=FAULT]                                what its requests suffer from now on
//	release id=1                                                      its late puts arrive
//	put BODY                                                          overwrites the lease
//	lease                                                             shows it
type transcript struct {
	t      *testing.T
	mem    object.Store
	nodes  map[string]*node
	nonces int
}

type node struct {
	*Lease
	store  *faultstore.Store
	faults map[faultstore.Op]faultstore.Fault
}

func (tr *transcript) node(d *datadriven.TestData) string {
	cfg := Config{
		ClusterID: "cluster", Incarnation: "a", TTL: 6 * time.Second, Renew: time.Second,
		Nonce:  func() string { tr.nonces++; return "n" + strconv.Itoa(tr.nonces) },
		Jitter: func(below time.Duration) time.Duration { return below / 2 },
	}
	id, chain, ttl, renew := "", "0", 6000, 1000
	d.ScanArgs(tr.t, "id", &id)
	d.MaybeScanArgs(tr.t, "run", &cfg.Incarnation)
	d.MaybeScanArgs(tr.t, "former", &cfg.Former)
	d.MaybeScanArgs(tr.t, "chain", &chain)
	d.MaybeScanArgs(tr.t, "ttl", &ttl)
	d.MaybeScanArgs(tr.t, "renew", &renew)
	broker, err := strconv.Atoi(id)
	if err != nil {
		tr.t.Fatal(err)
	}
	cfg.Broker, cfg.Endpoint = wire.BrokerID(broker), "host"+id+":9093"
	cfg.TTL, cfg.Renew = time.Duration(ttl)*time.Millisecond, time.Duration(renew)*time.Millisecond
	l, err := New(cfg)
	if err != nil {
		return err.Error() + "\n"
	}
	n := &node{Lease: l}
	n.store = faultstore.New(tr.mem, func(c faultstore.Call) faultstore.Fault { return n.faults[c.Op] })
	if chain != "unknown" {
		n.chainKnown = true
		if n.epoch, err = strconv.ParseInt(chain, 10, 64); err != nil {
			tr.t.Fatal(err)
		}
	}
	tr.nodes[id] = n
	return ""
}

func (tr *transcript) step(d *datadriven.TestData) string {
	var id string
	var ms int64
	d.ScanArgs(tr.t, "id", &id)
	d.ScanArgs(tr.t, "at", &ms)
	n, now := tr.nodes[id], at(ms)
	var out strings.Builder
	ev := tr.event(d)
	for {
		a := n.Step(now, ev)
		if a.Op == OpNone {
			break
		}
		ev = Do(context.Background(), n.store, a)
		fmt.Fprintf(&out, "%s: %s\n", describeAction(a), describeEvent(ev))
	}
	if epoch, ok := n.Holds(now); ok {
		fmt.Fprintf(&out, "holds epoch %d until %s, ", epoch, since(n.ValidUntil()))
	} else if err := n.Unreadable(); err != nil {
		fmt.Fprintf(&out, "%v, ", err)
	}
	if wake, ok := n.NextWake(); ok {
		fmt.Fprintf(&out, "wakes %s\n", since(wake))
	} else {
		fmt.Fprintln(&out, "waits")
	}
	return out.String()
}

func (tr *transcript) event(d *datadriven.TestData) Event {
	for _, arg := range d.CmdArgs {
		number := func() int64 {
			n, err := strconv.ParseInt(strings.Join(arg.Vals, ""), 10, 64)
			if err != nil {
				tr.t.Fatal(err)
			}
			return n
		}
		switch arg.Key {
		case "dead":
			broker, run, _ := strings.Cut(arg.Vals[0], "/")
			id, err := strconv.Atoi(broker)
			if err != nil {
				tr.t.Fatal(err)
			}
			return HolderDead{wire.BrokerID(id), run}
		case "chain":
			return ChainTail{number()}
		case "resign":
			if len(arg.Vals) == 0 {
				return Resign{-1}
			}
			return Resign{time.Duration(number()) * time.Millisecond}
		}
	}
	return Tick{}
}

func describeAction(a Action) string {
	if a.Op == OpRead {
		return "read"
	}
	verb := "swap"
	if a.Condition.Kind == object.Absent {
		verb = "create"
	}
	return fmt.Sprintf("%s epoch %d seq %d %s", verb, a.Record.Epoch, a.Record.Seq, a.Record.State)
}

func describeEvent(ev Event) string {
	describe := func(r *Record) string {
		if r == nil {
			return "nothing"
		}
		return fmt.Sprintf("broker %d/%s epoch %d seq %d %s", r.Holder, r.Incarnation, r.Epoch, r.Seq, r.State)
	}
	switch ev := ev.(type) {
	case ReadDone:
		if ev.Err != nil {
			return ev.Err.Error()
		}
		return describe(ev.Record)
	case WriteDone:
		if ev.Outcome == object.Lost {
			return "lost to " + describe(ev.Record)
		}
		return ev.Outcome.String()
	}
	return fmt.Sprintf("%T", ev)
}

var faultNames = map[string]faultstore.Fault{
	"refuse": faultstore.Refuse, "lose": faultstore.LoseAnswer, "late": faultstore.Late,
	"twice": faultstore.Twice, "conflict": faultstore.Conflict, "falsely": faultstore.FalseFailure, "stale": faultstore.Stale,
}

func (tr *transcript) run(_ *testing.T, d *datadriven.TestData) string {
	var id string
	d.MaybeScanArgs(tr.t, "id", &id)
	switch d.Cmd {
	case "node":
		return tr.node(d)
	case "step":
		return tr.step(d)
	case "fault":
		tr.nodes[id].faults = map[faultstore.Op]faultstore.Fault{}
		for _, arg := range d.CmdArgs[1:] {
			f, ok := faultNames[arg.Vals[0]]
			if !ok {
				tr.t.Fatalf("%s: unknown fault %s", d.Pos, arg.Vals[0])
			}
			tr.nodes[id].faults[faultstore.Op(arg.Key)] = f
		}
		return ""
	case "release":
		s := tr.nodes[id].store
		var out strings.Builder
		for range s.Late() {
			if err := s.Release(tr.t.Context(), 0); err != nil {
				fmt.Fprintln(&out, err)
			} else {
				fmt.Fprintln(&out, "landed")
			}
		}
		return out.String()
	case "put":
		if _, err := tr.mem.Put(tr.t.Context(), Key, strings.NewReader(d.Input), object.Condition{}); err != nil {
			tr.t.Fatal(err)
		}
		return ""
	case "lease":
		body, _, err := object.Read(tr.t.Context(), tr.mem, Key, recordBytesMax)
		if err != nil {
			return err.Error() + "\n"
		}
		return string(body)
	}
	tr.t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
	return ""
}

func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		tr := &transcript{t: t, mem: memstore.New(nil), nodes: map[string]*node{}}
		datadriven.RunTest(t, path, tr.run)
	})
}
