package group

import (
	"time"

	"github.com/tidemark-io/tidemark/broker/coordinator"
)

type shard struct{}

func (*shard) Replay(coordinator.Record) error              { return nil }
func (*shard) Loaded(time.Time)                             {}
func (*shard) Advance(time.Time) (coordinator.Result, bool) { return coordinator.Result{}, false }
func (*shard) NextWake() time.Time                          { return time.Time{} }
func (*shard) Unload() []func(error)                        { return nil }
