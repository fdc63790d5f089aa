package lease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/object"
)

// Key is where the lease lies. The object is never deleted, only released by its state, so that epochs never begin again.
const Key = "controller/lease.json"

// formatVersion is the version of the record that this code reads and writes.
const formatVersion = 1

// recordBytesMax is far above what a record needs.
const recordBytesMax = 64 << 10

// durationMax is above every sensible ttl: a record that asks for more would keep everybody out.
const durationMax = 10 * time.Minute

// ErrRecord: the lease object is damaged, of a version that this code does not know, or of another cluster. Nobody takes
// it until a person has looked at it.
var ErrRecord = errors.New("the lease is not readable")

// State says whether a lease counts.
type State string

// The states of a lease.
const (
	Held     State = "held"
	Released State = "released"
)

// Record is the lease as it is stored.
type Record struct {
	Version     int           `json:"version"`
	ClusterID   string        `json:"cluster_id"`
	Epoch       int64         `json:"epoch"` // of the holder; up by one at least with each that takes the lease
	Holder      wire.BrokerID `json:"holder_id"`
	Incarnation string        `json:"incarnation"`
	Endpoint    string        `json:"endpoint"` // where brokers reach the holder
	State       State         `json:"state"`
	Seq         int64         `json:"seq"`   // up by one with each write
	Nonce       string        `json:"nonce"` // of this write, so that no two bodies are equal
	PrevNonce   string        `json:"prev_nonce"`
	TTLMs       int64         `json:"ttl_ms"`
	RenewMs     int64         `json:"renew_ms"`
	WallMs      int64         `json:"wall_ms"`       // for people: nobody compares wall clocks
	MAC         string        `json:"mac,omitempty"` // reserved
}

func (r Record) ttl() time.Duration   { return time.Duration(r.TTLMs) * time.Millisecond }
func (r Record) renew() time.Duration { return time.Duration(r.RenewMs) * time.Millisecond }

// byIncarnation tells whether it was written by that run of that broker.
func (r Record) byIncarnation(broker wire.BrokerID, incarnation string) bool {
	return r.Holder == broker && r.Incarnation == incarnation
}

func encode(r Record) ([]byte, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode lease: %w", err)
	}
	return append(body, '\n'), nil
}

func decode(body []byte) (Record, error) {
	var r Record
	if err := json.Unmarshal(body, &r); err != nil {
		return Record{}, fmt.Errorf("%w: %w", ErrRecord, err)
	}
	switch {
	case r.Version != formatVersion:
		return Record{}, fmt.Errorf("%w: version %d, this program knows %d", ErrRecord, r.Version, formatVersion)
	case r.Epoch < 1 || r.Seq < 1 || r.Nonce == "" || r.Incarnation == "":
		return Record{}, fmt.Errorf("%w: epoch %d, seq %d, nonce %q, incarnation %q", ErrRecord, r.Epoch, r.Seq, r.Nonce, r.Incarnation)
	case r.State != Held && r.State != Released:
		return Record{}, fmt.Errorf("%w: state %q", ErrRecord, r.State)
	case r.RenewMs < 1 || r.TTLMs < r.RenewMs || r.TTLMs > durationMax.Milliseconds():
		return Record{}, fmt.Errorf("%w: ttl %d ms, renewed each %d ms", ErrRecord, r.TTLMs, r.RenewMs)
	}
	return r, nil
}

// Do carries an action out and returns the event to step with. It blocks on the store and gives up with ctx; it uses
// nothing of the Lease, which may step on meanwhile.
func Do(ctx context.Context, s object.Store, a Action) Event {
	switch a.Op {
	case OpRead:
		return read(ctx, s)
	case OpWrite:
		return write(ctx, s, a)
	}
	return Tick{}
}

func read(ctx context.Context, s object.Store) Event {
	body, token, err := object.Read(ctx, s, Key, recordBytesMax)
	switch {
	case errors.Is(err, object.ErrNotExist):
		return ReadDone{}
	case errors.Is(err, object.ErrTooLarge):
		return ReadDone{Err: fmt.Errorf("%w: %w", ErrRecord, err)}
	case err != nil:
		return ReadDone{Err: fmt.Errorf("read lease: %w", err)}
	}
	r, err := decode(body)
	if err != nil {
		return ReadDone{Err: err}
	}
	return ReadDone{Record: &r, Token: token}
}

func write(ctx context.Context, s object.Store, a Action) Event {
	body, err := encode(a.Record)
	if err != nil {
		return WriteDone{Err: err}
	}
	settled, err := object.Settle(ctx, s, Key, body, a.Condition, recordBytesMax)
	if err != nil {
		return WriteDone{Err: err}
	}
	if settled.Body == nil {
		return WriteDone{Outcome: settled.Outcome} // deleted under our hands
	}
	current, err := decode(settled.Body)
	switch {
	case err != nil:
		return WriteDone{Err: err}
	case settled.Outcome == object.Lost && current.Seq < a.Record.Seq:
		// Whoever beat us has a sequence number at least as high. This one is from before: a stale read.
		return WriteDone{Err: fmt.Errorf("write of lease %d answered with %d", a.Record.Seq, current.Seq)}
	}
	return WriteDone{Outcome: settled.Outcome, Record: &current, Token: settled.Token}
}
