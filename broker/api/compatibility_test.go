package api_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/api"
)

var update = flag.Bool("update", false, "write docs/compatibility.md anew")

const compatibilityPage = "../../docs/compatibility.md"

// missing says which part of Tidemark will serve the keys that Kafka 4.4 serves and this version does not.
var missing = []struct {
	part  string
	names []string
}{
	{"transactions", []string{
		"AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "TxnOffsetCommit", "WriteTxnMarkers", "DescribeTransactions", "ListTransactions",
	}},
	{"security", []string{
		"SASLHandshake", "SASLAuthenticate", "DescribeACLs", "CreateACLs", "DeleteACLs", "DescribeUserSCRAMCredentials",
		"AlterUserSCRAMCredentials", "CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken", "DescribeDelegationToken",
	}},
	{"quotas", []string{"DescribeClientQuotas", "AlterClientQuotas"}},
	{"several brokers", []string{
		"ElectLeaders", "AlterPartitionAssignments", "ListPartitionReassignments", "AlterReplicaLogDirs", "UnregisterBroker",
	}},
	{"newer groups (KIP-848, KIP-932, KIP-1071)", []string{
		"ConsumerGroupHeartbeat", "ConsumerGroupDescribe", "ShareGroupHeartbeat", "ShareGroupDescribe", "ShareFetch", "ShareAcknowledge",
		"InitializeShareGroupState", "ReadShareGroupState", "WriteShareGroupState", "DeleteShareGroupState",
		"ReadShareGroupStateSummary", "DescribeShareGroupOffsets", "AlterShareGroupOffsets", "DeleteShareGroupOffsets",
		"StreamsGroupHeartbeat", "StreamsGroupDescribe", "StreamsGroupTopologyDescriptionUpdate",
	}},
	{"client metrics (KIP-714)", []string{"GetTelemetrySubscriptions", "PushTelemetry"}},
	{"nothing: Kafka's own brokers and controllers speak them among themselves", []string{
		"LeaderAndISR", "StopReplica", "UpdateMetadata", "ControlledShutdown", "Vote", "BeginQuorumEpoch", "EndQuorumEpoch", "AlterPartition",
		"Envelope", "FetchSnapshot", "BrokerRegistration", "BrokerHeartbeat", "AllocateProducerIDs", "ControllerRegistration",
		"AssignReplicasToDirs", "AddRaftVoter", "RemoveRaftVoter", "UpdateRaftVoter", "UnregisterController",
	}},
}

// The page of what is served is the table's. `go test ./broker/api -run Compatibility -update` writes it anew.
func TestCompatibilityPage(t *testing.T) {
	want := compatibility(t)
	if *update {
		if err := os.WriteFile(compatibilityPage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(compatibilityPage)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what is served: run this test with -update", compatibilityPage)
	}
}

func compatibility(t *testing.T) string {
	t.Helper()
	var page strings.Builder
	page.WriteString(`# Compatibility

Tidemark answers the requests below in the versions of Apache Kafka 4.4. This page is made from the table in
[broker/api/table.go](../broker/api/table.go); a test holds them together. ` + "`make peers`" + ` compares the answers with those of a real
Kafka, and what differs on purpose or is not yet repaired is listed in [peers/differ-allow.tsv](../peers/differ-allow.tsv).

A request of another key or version closes the connection, as in Kafka; ApiVersions alone answers versions that it does not know.

## What is served

| key | request | versions |
| ---: | --- | --- |
`)
	served := map[int16]bool{}
	for _, e := range api.Table() {
		served[int16(e.Key)] = true
		versions := fmt.Sprintf("%d to %d", e.Min, e.Max)
		if e.Min == e.Max {
			versions = fmt.Sprint(e.Min)
		}
		fmt.Fprintf(&page, "| %d | %s | %s |\n", e.Key, e.Name, versions)
	}
	page.WriteString(`
Produce is announced from version 0 on, as in Kafka, and served from 3 on: librdkafka takes a broker that announces more for one
without compression.

Within these requests the following is not there yet:

- A transactional id in InitProducerId is answered UNSUPPORTED_VERSION, and batches of a transaction are refused.
- Fetch serves consumers; a replica is refused on a client's listener.
- UpdateFeatures knows ` + "`metadata.version`" + ` alone, at Kafka 4.4's level.
- Logs of compacted topics are never cleaned, and retention never deletes them.
- Everybody may do everything: there is no authorizer, and authorized operations are reported as all that apply.

Bounds that Kafka has not, or sets wider: a request holds up to 262,144 elements in all its arrays together (Kafka: a million in each),
and names up to sixteen times what it has named before where names bring long answers; a fetch waits no longer than
` + "`connections.max.idle.ms`" + `.

## What is not served

| waits for | requests |
| --- | --- |
`)
	explained := map[string]bool{}
	for _, m := range missing {
		fmt.Fprintf(&page, "| %s | %s |\n", m.part, strings.Join(m.names, ", "))
		for _, name := range m.names {
			explained[name] = true
		}
	}
	for key := range int16(kmsg.MaxKey + 1) {
		request := kmsg.RequestForKey(key)
		if name := kmsg.NameForKey(key); request != nil && explained[name] == served[key] {
			t.Errorf("%d %s: served %t, listed as missing %t", key, name, served[key], explained[name])
		}
		delete(explained, kmsg.NameForKey(key))
	}
	for name := range explained {
		t.Errorf("%s is no request", name)
	}
	return page.String()
}
