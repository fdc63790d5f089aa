package sim

import (
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/api"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// worker is a client as the cluster sees it.
type worker interface {
	// waitsFor says what the worker has asked for and not got; empty: nothing.
	waitsFor() string
}

// client is what all workers are made of: a name, a connection that is opened again when it broke, and one thing to do next.
type client struct {
	c      *cluster
	name   string
	random *rand.Rand
	x      *conn
	strays bool   // its requests may arrive after their connection broke
	act    func() // does the next thing, and sees to it that it is called again
	due    bool   // act is scheduled
}

func newClient(c *cluster, name string, act func()) client {
	return client{c: c, name: name, random: c.stream(name), act: act}
}

// enlist creates the workers of the plan.
func (c *cluster) enlist() {
	p := &c.plan
	add := func(w worker) { c.clients = append(c.clients, w) }
	add(newAdmin(c))
	for i := range p.producers {
		add(newProducer(c, i))
	}
	for i := range p.consumers {
		add(newConsumer(c, i))
	}
	for i := range p.committers {
		add(newCommitter(c, i))
	}
	for i := range p.members {
		add(newMember(c, i))
	}
}

// soon calls act after about d, once.
func (cl *client) soon(d time.Duration) {
	if cl.due {
		return
	}
	cl.due = true
	d += time.Duration(cl.random.Int64N(int64(d) + 1))
	cl.c.clock.at(latest(cl.c.morning, cl.c.clock.now).Add(d), func() {
		cl.due = false
		cl.act()
	})
}

// connected opens a connection if there is none; false: the broker takes none now.
func (cl *client) connected() bool {
	if cl.x == nil || cl.x.closed {
		cl.x = cl.c.node.connect(cl.name)
		if cl.x != nil {
			cl.x.strays = cl.strays
		}
	}
	return cl.x != nil
}

// call sends a request over the open connection; done gets nil when the connection broke.
func (cl *client) call(request kmsg.Request, note string, done func(kmsg.Response)) {
	name := kmsg.NameForKey(request.Key())
	cl.c.trace.add(cl.name, "> %s v%d %s", name, request.GetVersion(), note)
	cl.x.send(request, func(response kmsg.Response) {
		if response == nil {
			cl.c.trace.add(cl.name, "< %s v%d: lost", name, request.GetVersion())
		}
		done(response)
	})
	if x := cl.x; cl.c.plan.disconnects && !cl.c.healed && cl.random.IntN(200) == 0 {
		cl.c.clock.after(time.Duration(cl.random.IntN(3000))*time.Microsecond, func() { x.cut(true) })
	}
}

// version draws one that the broker serves, within bounds.
func (cl *client) version(key kmsg.Key, low, high int16) int16 {
	for _, e := range api.Table() {
		if e.Key == wire.APIKey(key) {
			low, high = max(low, e.Min), min(high, e.Max)
			return low + int16(cl.random.IntN(int(high-low)+1))
		}
	}
	panic("sim: the broker does not serve " + key.Name())
}

// anyVersion is no bound.
const anyVersion = 1000

// code is an error code of an answer, by name.
func code(c int16) wire.Code { return wire.Code(c) }
