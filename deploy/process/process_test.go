package process

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// asBroker makes this test's binary be a program that behaves as its value says.
const asBroker = "TIDEMARK_TEST_AS_BROKER"

func TestMain(m *testing.M) {
	if behaviour := os.Getenv(asBroker); behaviour != "" {
		os.Exit(pretend(behaviour))
	}
	os.Exit(m.Run())
}

// pretend is a broker as far as this package sees one.
func pretend(behaviour string) (status int) {
	fmt.Fprintln(os.Stderr, "arguments:", strings.Join(os.Args[1:], " "))
	if behaviour == "refuses" {
		return 3
	}
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	admin, err := net.Listen("tcp", os.Args[slices.Index(os.Args, "--admin")+1])
	if err != nil {
		return 5
	}
	http.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "# HELP a it\na{kind=\"x y\"} 1\na{kind=\"z\"} 20\nab 300\n")
	})
	go http.Serve(admin, nil)
	fmt.Fprintln(os.Stdout, "Tidemark is ready\n\nCtrl-C stops it.")
	<-terminated
	if behaviour == "ends badly" {
		return 4
	}
	return 0
}

func newBroker(t *testing.T, behaviour string, settings ...string) *Broker {
	t.Helper()
	b, err := New(os.Args[0], t.TempDir(), settings...)
	if err != nil {
		t.Fatal(err)
	}
	b.Environment = []string{asBroker + "=" + behaviour}
	t.Cleanup(b.Kill)
	return b
}

func TestABrokerIsStartedAgainWhereItWas(t *testing.T) {
	b := newBroker(t, "serves", "a=b", "c=d")
	b.Store = "mem://"
	want := fmt.Sprintf("arguments: dev --listen %s --admin %s --data %s --store mem:// --set a=b --set c=d --more\n", b.Address, b.Admin, b.Data)
	for _, end := range []func() error{b.Stop, func() error { b.Kill(); return nil }, b.Stop} {
		if err := b.Start(t.Context(), "--more"); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.Greeting(), "is ready") || b.Ready <= 0 {
			t.Errorf("ready after %v: %q", b.Ready, b.Greeting())
		}
		process := b.PID()
		if err := end(); err != nil {
			t.Error(err)
		}
		if got := b.Log(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if err := syscall.Kill(process, 0); err == nil {
			t.Error("the process is there still")
		}
	}
}

func TestAnErrorSaysHowTheBrokerEndedAndWhatItLogged(t *testing.T) {
	refusing := newBroker(t, "refuses")
	if err := refusing.Start(t.Context()); !EndedByItself(err) || !strings.Contains(err.Error(), "status 3\narguments: dev") {
		t.Errorf("start: %v", err)
	}
	if err := refusing.Stop(); err != nil {
		t.Errorf("stop of what does not run: %v", err)
	}
	bad := newBroker(t, "ends badly")
	if err := bad.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := bad.Stop(); !EndedByItself(err) || !strings.Contains(err.Error(), "status 4\narguments: dev") {
		t.Errorf("stop: %v", err)
	}
	missing := newBroker(t, "serves")
	missing.Command = []string{t.TempDir()}
	if err := missing.Start(t.Context()); err == nil || EndedByItself(err) {
		t.Errorf("start of a folder: %v", err)
	}
}

func TestAProcessThatHangsSaysWhere(t *testing.T) {
	b := newBroker(t, "serves")
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	inTime := deadline(b.cmd, 0)
	if err := b.cmd.Wait(); err == nil || inTime() || !strings.Contains(b.Log(), "process.pretend(") {
		t.Errorf("%v\n%s", err, b.Log())
	}
	b.cmd = nil
}

func TestWhatTheProcessLogsIsPassedOn(t *testing.T) {
	b := newBroker(t, "serves")
	var also strings.Builder
	b.Stderr = &also
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.Stop(); err != nil {
		t.Error(err)
	}
	if also.String() != b.Log() || also.Len() == 0 {
		t.Errorf("%q", also.String())
	}
}

func TestMetricsAreSummedByLabel(t *testing.T) {
	b := newBroker(t, "serves")
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for label, want := range map[string]float64{"": 21, `kind="x y"`: 1, `kind="none"`: 0} {
		if got, err := b.Metric(t.Context(), "a", label); err != nil || got != want {
			t.Errorf("%s: %v, %v, want %v", label, got, err, want)
		}
	}
}

func TestAddressesAreNotGivenOutTwice(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		address, err := FreeAddress()
		if err != nil || seen[address] {
			t.Fatalf("%s: %v", address, err)
		}
		seen[address] = true
	}
}
