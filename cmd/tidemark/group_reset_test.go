package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

func TestAResetStaysBetweenStartAndEnd(t *testing.T) {
	starts, ends := listed(kadm.ListedOffset{Topic: "t", Offset: 10}), listed(kadm.ListedOffset{Topic: "t", Offset: 20})
	for offset, want := range map[int64]int64{5: 10, 10: 10, 15: 15, 20: 20, 25: 20} {
		if got, err := within(starts, ends, "t", 0, offset); err != nil || got != want {
			t.Errorf("%d becomes %d, %v", offset, got, err)
		}
	}
}

// Just after an election a leader answers OFFSET_NOT_AVAILABLE, and -1.
func TestAResetNeedsTheStartAndTheEnd(t *testing.T) {
	known := listed(kadm.ListedOffset{Topic: "t", Offset: 10})
	for name, unknown := range map[string]kadm.ListedOffsets{
		"failed":    listed(kadm.ListedOffset{Topic: "t", Offset: -1, Err: kerr.OffsetNotAvailable}),
		"no offset": listed(kadm.ListedOffset{Topic: "t", Offset: -1}),
		"missing":   listed(kadm.ListedOffset{Topic: "t", Partition: 1, Offset: 10}),
	} {
		_, err := within(known, unknown, "t", 0, 15)
		if err == nil || name == "failed" && !errors.Is(err, kerr.OffsetNotAvailable) {
			t.Errorf("end %s: %v", name, err)
		}
		if _, err := within(unknown, known, "t", 0, 15); err == nil {
			t.Errorf("start %s", name)
		}
	}
}

func TestOnlyAGroupsMembersAreBlamedForThemselves(t *testing.T) {
	for err, want := range map[error]bool{
		kerr.UnknownMemberID: true, kerr.NonEmptyGroup: true, kerr.GroupAuthorizationFailed: false, kerr.NotCoordinator: false, nil: false,
	} {
		if got := ofMembers(err); got != want {
			t.Errorf("%v: %v", err, got)
		}
	}
}

func TestAGroupOfAnotherKindIsNotMissing(t *testing.T) {
	if err := missingGroup(kadm.ListedGroup{}); !errors.Is(err, kerr.GroupIDNotFound) {
		t.Error(err)
	}
	if err := missingGroup(kadm.ListedGroup{Group: "g", GroupType: "share"}); err == nil || err.Error() != "it is a share group, and those are not shown here" {
		t.Error(err)
	}
}

func listed(offset kadm.ListedOffset) kadm.ListedOffsets {
	return kadm.ListedOffsets{offset.Topic: {offset.Partition: offset}}
}

// The first question for a group has the cluster make a topic, which takes a moment.
func TestGroupCommandsWaitForTheFirstCoordinator(t *testing.T) {
	for line, want := range map[string]string{
		"group reset g -t t --to start --execute": "", "group describe g": "GROUP_ID_NOT_FOUND", "group delete g": "GROUP_ID_NOT_FOUND",
	} {
		b, _ := inProcess(t, t.TempDir())
		s := session{t, b.Addresses()[0]}
		s.ok("", "topic create t")
		if got := s.run("", line); !strings.Contains(got.stdout+got.stderr, want) || strings.Contains(got.stderr, "COORDINATOR") || (got.status == 0) != (want == "") {
			t.Errorf("%s: status %d, %s%s", line, got.status, got.stdout, got.stderr)
		}
		closeBroker(t, b)
	}
}
