package sim_test

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/broker/sim"
)

var (
	seeds     = flag.Int("seeds", 200, "how many seeds TestSeeds plays")
	firstSeed = flag.Uint64("seed", 1, "the first of them")
	traceFile = flag.String("trace", "", "where the traces go; nowhere if empty")
)

// count is how many of n seeds are played: a tenth for short tests, which are for the race detector, that slows them down.
func count(n uint64) uint64 {
	if testing.Short() {
		return max(n/10, 1)
	}
	return n
}

// TestSeeds plays seeds. -seed and -seeds say which.
func TestSeeds(t *testing.T) {
	for seed := *firstSeed; seed < *firstSeed+count(uint64(*seeds)); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			play(t, seed)
		})
	}
}

func play(t *testing.T, seed uint64) sim.Result {
	o := sim.Options{Seed: seed}
	if *traceFile != "" {
		file, err := os.Create(*traceFile)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		buffered := bufio.NewWriter(file)
		defer buffered.Flush()
		o.Trace = buffered
	}
	r := sim.Run(o)
	if r.Err != nil {
		t.Errorf("%s\nseed %d: %v\nreplay: go test ./broker/sim -run 'TestSeeds$' -seeds=1 -seed=%d -trace=/tmp/trace.txt",
			strings.Join(r.Tail, ""), seed, r.Err, seed)
	}
	t.Logf("%s %+v", r.Hash, r.Stats)
	return r
}

// TestSameSeedSameTrace: whatever differs between two runs of a seed has asked a clock, walked a map, or drawn from a source that is not the
// run's own.
func TestSameSeedSameTrace(t *testing.T) {
	for seed := *firstSeed; seed < *firstSeed+count(20); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			if first, second := sim.Run(sim.Options{Seed: seed}), sim.Run(sim.Options{Seed: seed}); first.Hash != second.Hash {
				t.Errorf("seed %d: traces %s and %s", seed, first.Hash, second.Hash)
			}
		})
	}
}
