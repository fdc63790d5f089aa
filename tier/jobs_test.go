package tier

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/object/faultstore"
)

// open runs the jobs that are due until all that is left are uploads, which it returns without running them.
func (r *rig) uploads() (uploads []Job) {
	r.t.Helper()
	for range 100 {
		jobs := r.m.Due(r.now)
		before := r.m.uploads
		for _, job := range jobs {
			if p := r.m.partitions[job.Partition]; p.running.upload > 0 {
				uploads = append(uploads, job)
				continue
			}
			job.Run(r.t.Context())(r.now)
		}
		if len(jobs) == 0 || before == r.m.uploads && len(jobs) == len(uploads) {
			return uploads
		}
	}
	return uploads
}

func manyTopics(count int) []string {
	topics := make([]string, count)
	for i := range topics {
		topics[i] = fmt.Sprintf("topic%02d", i)
	}
	return topics
}

func TestUploadsAreBoundedAndOneToAPartition(t *testing.T) {
	r := newRig(t, manyTopics(9)...)
	r.lead(StartHere)
	r.produce(20)
	r.config.Parallel = 3
	uploads := r.uploads()
	if len(uploads) != 3 {
		t.Fatalf("%d uploads at a time", len(uploads))
	}
	partitions := map[wire.TopicPartition]bool{}
	for _, job := range uploads {
		partitions[job.Partition] = true
	}
	if len(partitions) != 3 {
		t.Errorf("several uploads of a partition: %v", partitions)
	}
	uploads[0].Run(t.Context())(r.now)
	if more := r.uploads(); len(more) != 1 || partitions[more[0].Partition] {
		t.Errorf("after one is done: %v", more)
	}
}

func TestUploadsKeepToTheByteRate(t *testing.T) {
	r := newRig(t, manyTopics(4)...)
	r.config.BytesPerSecond = 500
	r.lead(StartHere)
	r.produce(20)
	began := r.now
	var bytes []int64
	for range 20 {
		r.pass(5 * time.Second)
		var total int64
		for _, s := range r.m.Stats(r.now) {
			total += s.RemoteBytes
		}
		bytes = append(bytes, total)
	}
	for i, b := range bytes[:3] {
		elapsed := r.now.Sub(began).Seconds() * float64(i+1) / 20
		if limit := 500*elapsed + 4*1024; float64(b) > limit {
			t.Errorf("%d bytes after %.0f s", b, elapsed)
		}
	}
	if all := bytes[len(bytes)-1]; all < 4*18*100 || bytes[0] == all {
		t.Errorf("bytes every 5 s: %v", bytes)
	}
}

func TestAJobThatHangsIsLetGo(t *testing.T) {
	r := newRig(t, "orders", "payments")
	r.lead(StartHere)
	hung := false
	r.hook = func(point string) {
		if point != pointPutData || hung {
			return
		}
		hung = true
		for range 10 { // the store does not answer, and the loop goes on
			r.now = r.now.Add(stalledAfter / 9)
			for _, job := range r.m.Due(r.now) {
				job.Run(t.Context())(r.now)
			}
		}
	}
	r.produce(8)
	r.step()
	var failed []error
	for _, s := range r.m.Stats(r.now) {
		if s.Err != nil {
			failed = append(failed, s.Err)
		}
	}
	if !hung || len(failed) != 1 || !errors.Is(failed[0], errStalled) {
		t.Fatalf("errors %v", failed)
	}
	r.pass(time.Minute)
	for _, s := range r.m.Stats(r.now) {
		if s.Err != nil || s.BehindSegments > 0 {
			t.Errorf("%+v", s)
		}
	}
	r.check()
}

func TestAFailingPartitionHoldsUpNoOther(t *testing.T) {
	r := newRig(t, "orders", "payments")
	r.lead(StartHere)
	var tries []time.Time
	r.faults = func(c faultstore.Call) faultstore.Fault {
		if isData(c) && c.Key[len("topics/"):][0] == 'o' {
			tries = append(tries, r.now)
			return faultstore.Refuse
		}
		return faultstore.None
	}
	r.produce(20)
	for range 120 {
		r.produce(1) // hints are no reason to try sooner
		r.pass(5 * time.Second)
	}
	r.pass(2 * testUnsealed)
	if s := r.stats("payments"); s.BehindSegments > 0 || s.Err != nil {
		t.Errorf("%+v", s)
	}
	if s := r.stats("orders"); s.Err == nil || s.TieredEnd != 0 {
		t.Errorf("%+v", s)
	}
	var pauses []time.Duration
	for i := range tries[1:] {
		pauses = append(pauses, tries[i+1].Sub(tries[i]))
	}
	if len(tries) < 10 || len(tries) > 40 || slices.Max(pauses) > 2*backoffMax || pauses[0] > 2*time.Second {
		t.Errorf("pauses between %d tries: %v", len(tries), pauses)
	}
}

// A backlog of uploads may take hours. Who waits for a turn is looked at meanwhile, and keeps its place.
func TestSafety23DeleteRecordsDoesNotWaitForATurnToUpload(t *testing.T) {
	r := newRig(t, manyTopics(5)...)
	r.config.Parallel = 1
	r.lead(StartHere)
	r.produce(20)
	uploads := r.uploads() // of topic00; the others wait
	if len(uploads) != 1 || len(r.m.ready) != 4 {
		t.Fatalf("%d uploads, %d wait", len(uploads), len(r.m.ready))
	}
	order := slices.Clone(r.m.ready)
	report := func(topic string, offset wire.Offset) *error {
		if err := r.log(topic).AdvanceStart(offset); err != nil {
			t.Fatal(err)
		}
		answer := errors.New("none")
		r.m.ReportLogStart(r.now, tpOf(topic), offset, r.now.Add(30*time.Second), func(_ time.Time, err error) { answer = err })
		return &answer
	}
	later := func() {
		for range 3 {
			r.now = r.now.Add(pulse)
			if more := r.uploads(); len(more) > 0 {
				t.Fatalf("%d uploads more", len(more))
			}
		}
	}
	first, last := order[0].Topic, order[3].Topic
	within, behind := report(first, 8), report(last, r.log(last).EndOffset())
	later()
	if *within != nil || *behind != nil || r.state(first).LogStart != 8 || r.state(last).LogStart != 20 {
		t.Errorf("answers %v, %v", *within, *behind)
	}
	if !slices.Equal(r.m.ready, order[:3]) || r.m.ready[0].upload.Offset != 8 {
		t.Errorf("%d wait, the first with %+v", len(r.m.ready), r.m.ready[0].upload)
	}

	// Nor does retention.
	r.topic.RetentionBytes = 1
	r.log(order[1].Topic).UpdateConfig(r.topic)
	r.now = r.now.Add(idleLook)
	later()
	if l := r.log(order[1].Topic); l.StartOffset() < 18 {
		t.Errorf("retention waits: the log starts at %d", l.StartOffset())
	}

	// What is reported while a look is out that has not seen it is looked at next.
	r.now = r.now.Add(idleLook)
	var late *error
	for _, job := range r.m.Due(r.now) {
		complete := job.Run(t.Context())
		if job.Partition.Topic == first {
			late = report(first, 9)
		}
		complete(r.now)
	}
	later()
	if late == nil || *late != nil {
		t.Error("what came meanwhile was not looked at")
	}
	uploads[0].Run(t.Context())(r.now)
	r.pass(time.Minute)
	for _, s := range r.m.Stats(r.now) {
		if s.Err != nil || s.BehindSegments > 0 {
			t.Errorf("%+v", s)
		}
	}
	r.check()
}

// A segment that DeleteRecords has passed since it was planned is not uploaded.
func TestWhatTheLogStartHasPassedIsNotUploaded(t *testing.T) {
	r := newRig(t)
	r.lead(StartHere)
	r.produce(20)
	uploads := r.uploads()
	puts := 0
	r.faults = func(c faultstore.Call) faultstore.Fault {
		if isData(c) {
			puts++
		}
		return faultstore.None
	}
	if err := r.log("orders").AdvanceStart(18); err != nil || len(uploads) != 1 {
		t.Fatal(err, len(uploads))
	}
	uploads[0].Run(t.Context())(r.now)
	if r.settle(); puts > 0 || r.state("orders").LogStart != 18 {
		t.Errorf("%d puts, log start %d", puts, r.state("orders").LogStart)
	}
}

func TestANewLeadershipWaitsForTheJobOfTheFormer(t *testing.T) {
	r := newRig(t)
	r.lead(StartHere)
	r.produce(20)
	uploads := r.uploads()
	if len(uploads) != 1 {
		t.Fatalf("%d uploads", len(uploads))
	}
	r.lead(StartHere)
	r.lead(StartHere)
	r.m.Resign(tpOf("orders"))
	r.lead(StartHere)
	if jobs := r.m.Due(r.now); len(jobs) != 0 {
		t.Fatalf("%d jobs of a partition at a time", len(jobs))
	}
	uploads[0].Run(t.Context())(r.now) // it was cancelled
	r.settle()
	if s := r.state("orders"); s.Segments != 3 || s.LeaderEpoch() != r.epoch {
		t.Errorf("%d segments under epoch %d", s.Segments, s.LeaderEpoch())
	}
	r.check()
	// The same epoch again is the same leadership.
	position := r.state("orders").Position
	r.epoch--
	r.lead(StartHere)
	r.settle()
	if r.state("orders").Position != position {
		t.Error("the same epoch began anew")
	}
}

func TestAPartitionThatIsResignedDoesNothingMore(t *testing.T) {
	r := newRig(t)
	r.lead(StartHere)
	r.produce(20)
	r.m.Resign(tpOf("orders"))
	r.m.Resign(tpOf("orders"))
	if jobs := r.m.Due(r.now); len(jobs) != 0 || !r.m.NextWake().IsZero() || r.m.Manifest(tpOf("orders")) != nil {
		t.Errorf("%d jobs, woken at %v", len(jobs), r.m.NextWake())
	}
	if _, ok := r.m.Partition(r.now, tpOf("orders")); ok || len(r.m.Stats(r.now)) != 0 {
		t.Error("it has numbers")
	}
}

func TestAnIdlePartitionCostsNextToNothing(t *testing.T) {
	r := newRig(t, manyTopics(20)...)
	r.lead(StartHere)
	r.produce(8)
	r.pass(5 * time.Minute)
	r.config.MaxUnsealed = time.Hour
	r.pass(5 * time.Minute)
	calls, jobs := 0, 0
	r.faults = func(faultstore.Call) faultstore.Fault { calls++; return faultstore.None }
	for range 3600 {
		due := r.m.Due(r.now)
		jobs += len(due)
		for _, job := range due {
			job.Run(t.Context())(r.now)
		}
		r.now = r.now.Add(time.Second)
	}
	if calls > 0 || jobs > 20*30 {
		t.Errorf("%d requests and %d looks in an hour", calls, jobs)
	}
}

func TestSlowSegmentsAreSealed(t *testing.T) {
	r := newRig(t, "orders", wire.ConsumerOffsetsTopic)
	r.config.MaxUnsealed = 5 * time.Minute
	r.lead(StartHere)
	r.produce(1)
	r.pass(90 * time.Second)
	if end := r.state("orders").End; end != 0 {
		t.Errorf("tiered end %d after 90 s", end)
	}
	if end := r.state(wire.ConsumerOffsetsTopic).End; end != 1 {
		t.Errorf("tiered end of an internal topic is %d after 90 s", end)
	}
	if s := r.stats("orders"); s.BehindAge < 80*time.Second || s.BehindAge > 100*time.Second {
		t.Errorf("%+v", s)
	}
	r.pass(4 * time.Minute)
	if s := r.stats("orders"); s.TieredEnd != 1 || s.BehindAge != 0 || s.BehindBytes != 0 {
		t.Errorf("%+v", s)
	}
}

func TestTieringThatIsSwitchedOffLeavesNothing(t *testing.T) {
	r := newRig(t)
	r.topic.LocalRetentionBytes = 1 << 10
	r.lead(StartHere)
	r.produce(40)
	r.settle()
	local := r.log("orders").LocalStartOffset()
	r.topic.RemoteStorageEnable, r.topic.RemoteLogDeleteOnDisable = false, true
	r.log("orders").UpdateConfig(r.topic)
	r.m.Changed(tpOf("orders"))
	r.pass(testGrace / 2)
	if l := r.log("orders"); l.StartOffset() != local || r.state("orders").Segments > 1 {
		t.Errorf("log start %d, local start %d, %d live segments", l.StartOffset(), local, r.state("orders").Segments)
	}
	r.pass(2 * testGrace)
	if r.objects() > 1 {
		t.Errorf("%d objects are left", r.objects())
	}
	r.check()
}

// Neither a broker that is started once without the tier nor one that has lost its checkpoints tells the manifest that the log begins
// with what is here.
func TestBO081TheBucketKeepsWhatTheBrokerForgot(t *testing.T) {
	for name, forget := range map[string]func(r *rig){
		"tier.enable=false for a while": func(r *rig) {
			r.topic.RemoteStorageEnable = false
			r.crash(log.StopProcessCrash)
			r.lead(StartHere)
			r.produce(5)
			r.pass(time.Hour)
			r.topic.RemoteStorageEnable = true
		},
		"the checkpoints are lost": func(r *rig) {
			for _, file := range []string{"replication-offset-checkpoint", "recovery-point-offset-checkpoint", "log-start-offset-checkpoint"} {
				if err := r.disk.Remove("/data/" + file); err != nil {
					r.t.Fatal(err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.topic.LocalRetentionBytes = 1 << 10
			r.lead(StartHere)
			r.produce(40)
			if err := r.log("orders").AdvanceStart(3); err != nil {
				t.Fatal(err)
			}
			r.pass(time.Minute)
			if at := r.log("orders").LocalStartOffset(); at < 10 || r.state("orders").LogStart != 3 {
				t.Fatalf("local start %d, log start %d", at, r.state("orders").LogStart)
			}
			if err := r.logs.Checkpoint(); err != nil {
				t.Fatal(err)
			}
			forget(r)
			r.crash(log.StopProcessCrash)
			r.lead(StartHere)
			r.produce(5)
			r.pass(4 * testGrace)
			if l := r.log("orders"); l.StartOffset() != 3 || r.state("orders").LogStart != 3 || l.HighWatermark() != l.EndOffset() {
				t.Errorf("the log starts at %d, by the manifest at %d; high watermark %d of %d",
					l.StartOffset(), r.state("orders").LogStart, l.HighWatermark(), l.EndOffset())
			}
			r.check()
		})
	}
}

func TestCopiesThatAreDisabledStopAndStay(t *testing.T) {
	r := newRig(t)
	r.lead(StartHere)
	r.produce(20)
	r.settle()
	end := r.state("orders").End
	r.topic.RemoteLogCopyDisable = true
	r.log("orders").UpdateConfig(r.topic)
	r.produce(20)
	r.pass(5 * time.Minute)
	if got := r.state("orders").End; got != end {
		t.Errorf("tiered end %d, was %d", got, end)
	}
	r.check()
}

func TestAManifestIsReadWhenAReaderAsks(t *testing.T) {
	r := newRig(t, manyTopics(looksMax+2)...)
	r.lead(StartHere)
	r.produce(1)
	r.lead(StartHere)
	last := tpOf(r.names[len(r.names)-1])
	if r.m.Manifest(last) != nil || r.wakes != 1 {
		t.Fatalf("woken %d times", r.wakes)
	}
	jobs := r.m.Due(r.now)
	if len(jobs) != looksMax || jobs[0].Partition != last {
		t.Fatalf("%d jobs, the first of %v", len(jobs), jobs[0].Partition)
	}
	jobs[0].Run(t.Context())(r.now)
	if r.m.Manifest(last) == nil {
		t.Error("not read")
	}
}

// Nothing was ever appended to most partitions of a large cluster: a start costs them no request, and nobody waits for the store.
func TestAPartitionThatWasNeverWrittenCostsNothing(t *testing.T) {
	requests := 0
	r := newRig(t, manyTopics(20)...)
	r.faults = func(faultstore.Call) faultstore.Fault { requests++; return faultstore.None }
	for _, stop := range []log.Stop{log.StopProcessCrash, log.StopProcessCrash, log.StopPowerLoss} {
		requests = 0
		r.lead(StartHere)
		r.pass(time.Hour)
		if held := len(r.released) > 0; held || requests > 0 {
			t.Errorf("epoch %d: held %v, %d requests", r.epoch, held, requests)
		}
		if answered := false; true {
			r.m.ReportLogStart(r.now, tpOf(r.names[0]), 0, r.now.Add(time.Minute), func(_ time.Time, err error) { answered = err == nil })
			if !answered {
				t.Error("DeleteRecords waits for the store, and has nothing to tell it")
			}
		}
		r.crash(stop)
	}
	r.lead(StartHere)
	r.settle()
	if len(r.released) != len(r.names) {
		t.Errorf("%d held after a power loss", len(r.released))
	}
	r.produce(1)
	r.pass(2 * testUnsealed)
	if s := r.state(r.names[0]); s.End != 1 {
		t.Errorf("what was written is in the bucket up to %d", s.End)
	}
}

func TestNumbersOfAPartitionThatIsTieredInPart(t *testing.T) {
	r := newRig(t)
	r.lead(StartHere)
	r.produce(20)
	r.faults = func(c faultstore.Call) faultstore.Fault {
		if isData(c) && r.state("orders").Segments == 1 {
			return faultstore.Refuse
		}
		return faultstore.None
	}
	r.settle()
	s, l := r.stats("orders"), r.log("orders")
	segments := l.Segments()
	if s.RemoteSegments != 1 || s.RemoteBytes != segments[0].Size || s.TieredEnd != segments[1].Base || s.BehindSegments != 2 ||
		s.BehindBytes != l.Size()-segments[0].Size || s.BehindAge < time.Second || !s.Open || s.Epoch != r.epoch {
		t.Errorf("%+v", s)
	}
}

func TestABatchWithoutRecordsCoversAnyRange(t *testing.T) {
	for _, c := range [][2]wire.Offset{{0, 1}, {5, 1005}, {100, 100 + math.MaxInt32}} {
		b := emptyBatch(c[0], c[1], 3)
		if err := b.Check(); err != nil || b.BaseOffset() != c[0] || b.NextOffset() != c[1] || b.Count() != 0 || b.LeaderEpoch() != 3 || len(b) != b.Length() {
			t.Errorf("%v: %v, [%d, %d), %d records", c, err, b.BaseOffset(), b.NextOffset(), b.Count())
		}
	}
	r := newRig(t)
	r.lead(StartHere)
	p := r.m.partitions[tpOf("orders")]
	const end = 3*math.MaxInt32 + 7
	if err := p.refillGap(r.now, end); err != nil || p.Log.EndOffset() != end {
		t.Errorf("the log ends at %d, %v", p.Log.EndOffset(), err)
	}
	r.crash(log.StopProcessCrash)
	if got := r.log("orders").EndOffset(); got != end {
		t.Errorf("afterwards the log ends at %d", got)
	}
}

func TestASegmentGoesUpSoonAfterItsTransactionEnds(t *testing.T) {
	r := newRig(t)
	r.config.MaxUnsealed = time.Hour
	r.lead(StartHere)
	r.unreplicated = true
	r.produce(20)
	r.pass(time.Minute)
	if end := r.state("orders").End; end != 0 {
		t.Fatalf("tiered end %d", end)
	}
	l := r.log("orders")
	l.UpdateHighWatermark(l.EndOffset()) // and nobody tells
	r.pass(2 * unstableLook)
	if s := r.stats("orders"); s.BehindSegments > 0 {
		t.Errorf("%+v", s)
	}
}

func TestWhatIsToldWhileAJobIsOutIsLookedAtAfterwards(t *testing.T) {
	r := newRig(t)
	r.lead(StartHere)
	r.produce(20)
	r.settle()
	r.now = r.now.Add(2 * pulse)
	r.m.Changed(tpOf("orders"))
	jobs := r.m.Due(r.now)
	if len(jobs) != 1 {
		t.Fatalf("%d jobs", len(jobs))
	}
	complete := jobs[0].Run(t.Context()) // it has looked
	r.m.Changed(tpOf("orders"))
	if jobs := r.m.Due(r.now); len(jobs) != 0 {
		t.Fatalf("%d jobs beside the one that is out", len(jobs))
	}
	complete(r.now)
	r.m.Due(r.now)
	r.now = r.now.Add(pulse)
	if jobs := r.m.Due(r.now); len(jobs) != 1 {
		t.Errorf("%d jobs for what was told meanwhile", len(jobs))
	}
}
