package csiserver

import (
	"testing"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/moor-storage/moor/pkg/provisioner"
)

func TestVolumeHealthTellsEachKindOfProblemOnce(t *testing.T) {
	problem := func(s provisioner.Severity, reason, message string) provisioner.Problem {
		return provisioner.Problem{Severity: s, Reason: reason, Message: message}
	}
	got := VolumeHealth(provisioner.VolumeHealth{VolumeID: "v", Problems: []provisioner.Problem{
		problem(provisioner.Inaccessible, "Gone", "first"), problem(provisioner.Inaccessible, "Gone", "second"),
		problem(provisioner.DataLoss, "Gone", "third"), problem(provisioner.Degraded, "Slow", "fourth"),
	}})
	want := []struct {
		status  csispec.VolumeHealthErrorType
		message string
	}{
		{csispec.VolumeHealthErrorType_INACCESSIBLE, "first"}, {csispec.VolumeHealthErrorType_DATA_LOSS, "third"}, {csispec.VolumeHealthErrorType_DEGRADED, "fourth"},
	}
	if len(got.GetHealthStatuses()) != len(want) {
		t.Fatalf("got %v", got)
	}
	for i, w := range want {
		if e := got.GetHealthStatuses()[i]; e.GetStatus() != w.status || e.GetMessage() != w.message {
			t.Errorf("entry %d: %v, want %v", i, e, w)
		}
	}
}
