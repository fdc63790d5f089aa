package broker

import (
	"context"
	"log/slog"
	"time"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/engine"
)

// Recover is Start for a cluster of which the object store has all that is left: where the log directories are new, it takes over what
// the bucket has and gives up what it has not (safety.md 30). Else it is Start.
func Recover(ctx context.Context, settings *config.Broker, logger *slog.Logger) (*Broker, error) {
	return start(ctx, settings, logger, true)
}

// Recovery is the report of the recovery with which this broker has started; false if there was none.
func (b *Broker) Recovery() (engine.RecoveryReport, bool) { return b.engine.Recovery() }

// RecoveryOutlook says what Recover would bring back and give up. It changes nothing.
func RecoveryOutlook(ctx context.Context, settings *config.Broker) (engine.RecoveryReport, error) {
	store, err := openStore(ctx, settings, newRegistry())
	if err != nil {
		return engine.RecoveryReport{}, err
	}
	return engine.RecoveryOutlook(ctx, time.Now(), settings, store, parallel(settings))
}
