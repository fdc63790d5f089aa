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
	seeds     = flag.Uint64("seeds", 200, "how many seeds are played; TestSameSeedSameTrace takes 20 of them at most")
	firstSeed = flag.Uint64("seed", 1, "the first of them")
	replays   = flag.Int("replays", 2, "how often TestSameSeedSameTrace plays each")
	traceFile = flag.String("tracefile", "", "where the trace of the last seed goes; nowhere if empty") // -trace is go test's own
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
	for seed := *firstSeed; seed < *firstSeed+count(*seeds); seed++ {
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
		t.Errorf("%s\nseed %d: %v\nreplay: go test ./broker/sim -run 'TestSeeds$' -seeds=1 -seed=%d -tracefile=/tmp/trace.txt",
			strings.Join(r.Tail, ""), seed, r.Err, seed)
	}
	t.Logf("%s %+v", r.Hash, r.Stats)
	return r
}

// TestSameSeedSameTrace: whatever differs between two runs of a seed has asked a clock, walked a map, or drawn from a source that is not the
// run's own.
func TestSameSeedSameTrace(t *testing.T) {
	for seed := *firstSeed; seed < *firstSeed+count(min(*seeds, 20)); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			first := sim.Run(sim.Options{Seed: seed}).Hash
			for range *replays - 1 {
				if again := sim.Run(sim.Options{Seed: seed}).Hash; again != first {
					t.Fatalf("seed %d: traces %s and %s", seed, first, again)
				}
			}
			t.Log(first)
		})
	}
}
