package tierbench

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tidemark-io/tidemark/tier/object/s3test"
)

// store starts a MinIO: here, or with -link at the other end of a wire, with its data in memory, so that it has no part in the broker's
// disk. With -pin it runs when nobody else wants the core that it shares with the clients, whom a machine of its own would not hold up.
func store(b testing.TB) *s3test.Server {
	b.Helper()
	var by []string
	folder, address := b.TempDir(), freeAddress(b)
	if *link != 0 {
		name, there := wireTo(b, *link)
		by, address = []string{"ip", "netns", "exec", name}, there+":9000"
		folder = inMemory(b)
	}
	if *pin {
		by = append(by, "chrt", "--idle", "0")
	}
	return s3test.StartAt(b, s3test.MinIO, folder, address, by...)
}

// inMemory makes a folder whose files lie in memory, until the test ends.
func inMemory(b testing.TB) string {
	b.Helper()
	folder, err := os.MkdirTemp("/dev/shm", "tierbench")
	if err != nil {
		b.Skipf("NOT MEASURED: -link needs a file system in memory for the store: %v", err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(folder) })
	return folder
}

const (
	// wireQueue is how much may wait for its turn on a wire: more than connections have on their way, so that nothing is dropped.
	wireQueue = 32 << 20
	// wireBurst is what goes at once: several of the largest packets.
	wireBurst = 512 << 10
)

// wireTo makes a network of its own and a link to it that carries so many MB/s each way, until the test ends. It returns the network's
// name and the address there. Addresses are of those that are set aside for benchmarks (RFC 2544).
func wireTo(b testing.TB, rate float64) (name, address string) {
	b.Helper()
	id := rand.IntN(1 << 15)
	name = "tierbench" + strconv.Itoa(id)
	at := func(end int) string { return fmt.Sprintf("198.%d.%d.%d", 18+id>>14, id>>6&255, id<<2&255+end) }
	here, there := fmt.Sprint("tbh", id), fmt.Sprint("tbs", id)
	shape := fmt.Sprintf("root tbf rate %.0fbps burst %d limit %d", rate*1e6, wireBurst, wireQueue)
	b.Cleanup(func() { _ = exec.Command("ip", "link", "del", here).Run() })  // it may not be there
	b.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() }) // as above
	for _, command := range []string{
		"ip netns add " + name,
		"ip link add " + here + " type veth peer name " + there + " netns " + name,
		"ip addr add " + at(1) + "/30 dev " + here,
		"ip link set " + here + " up",
		"ip -n " + name + " addr add " + at(2) + "/30 dev " + there,
		"ip -n " + name + " link set " + there + " up",
		"ip -n " + name + " link set lo up",
		"tc qdisc add dev " + here + " " + shape,
		"tc -n " + name + " qdisc add dev " + there + " " + shape,
	} {
		words := strings.Fields(command)
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			b.Skipf("NOT MEASURED: -link needs root, and ip and tc with namespaces, veth and tbf: %s: %v: %s", command, err, out)
		}
	}
	return name, at(2)
}

// pinned are the words before a command that give it the broker's core.
func pinned() []string {
	if !*pin {
		return nil
	}
	return []string{"taskset", "--cpu-list", strconv.Itoa(brokerCore)}
}

// brokerCore is the broker's with -pin.
var brokerCore int

// coresMax is how many cores are looked at.
const coresMax = 1024

// pinSelf leaves this process, and what it starts, the first of its cores, and the broker the second.
func pinSelf() error {
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return err
	}
	var cores []int
	for core := 0; len(cores) < 2 && core < coresMax; core++ {
		if all.IsSet(core) {
			cores = append(cores, core)
		}
	}
	if len(cores) < 2 {
		return errors.New("-pin needs two cores")
	}
	brokerCore = cores[1]
	var first unix.CPUSet
	first.Set(cores[0])
	runtime.GOMAXPROCS(1)
	threads, err := os.ReadDir("/proc/self/task") // those that start later inherit it
	for _, thread := range threads {
		id, _ := strconv.Atoi(thread.Name())
		err = errors.Join(err, unix.SchedSetaffinity(id, &first))
	}
	return err
}
