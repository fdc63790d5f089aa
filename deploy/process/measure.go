package process

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
)

// PID is the id of the process that runs.
func (b *Broker) PID() int { return b.cmd.Process.Pid }

// Memory is what the process has in memory, in bytes: now, and at most so far. Only Linux tells.
func (b *Broker) Memory() (now, most int64, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", b.PID()))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); len(fields) == 3 {
			kib, _ := strconv.ParseInt(fields[1], 10, 64)
			switch fields[0] {
			case "VmRSS:":
				now = kib << 10
			case "VmHWM:":
				most = kib << 10
			}
		}
	}
	return now, most, nil
}

// Metric is the sum of a metric's rows that have all of some labels, written as they are there: cause="fetch".
func (b *Broker) Metric(ctx context.Context, name string, labels ...string) (sum float64, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.Admin+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		end := strings.LastIndexByte(lines.Text(), ' ')
		metric, rest, _ := strings.Cut(lines.Text()[:max(end, 0)], "{")
		if metric != name || slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(rest, l) }) {
			continue
		}
		v, err := strconv.ParseFloat(lines.Text()[end+1:], 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", lines.Text(), err)
		}
		sum += v
	}
	return sum, lines.Err()
}
