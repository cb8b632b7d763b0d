package audit

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// line is a line of an audit log as kube-apiserver writes it at level Metadata.
func line(verb, user, ref string, code int, at string) string {
	return fmt.Sprintf(`{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"1","stage":"ResponseComplete",`+
		`"requestURI":"/apis","verb":%q,"user":{"username":%q,"groups":["g"]},"sourceIPs":["10.0.0.1"],"objectRef":%s,`+
		`"responseStatus":{"metadata":{},"code":%d},"requestReceivedTimestamp":%q,"stageTimestamp":%q}`+"\n", verb, user, ref, code, at, at)
}

const (
	attachmentRef = `{"resource":"dpuvolumeattachments","namespace":"n","name":"a","apiGroup":"storage.dpu.nvidia.com","apiVersion":"v1alpha1"}`
	statusRef     = `{"resource":"dpuvolumeattachments","apiGroup":"storage.dpu.nvidia.com","subresource":"status"}`
	leaseRef      = `{"resource":"leases","apiGroup":"coordination.k8s.io"}`
	heartbeatRef  = `{"resource":"dpustoragenodes","apiGroup":"storage.moor.dev","subresource":"status"}`
	tokenRef      = `{"resource":"serviceaccounts","subresource":"token"}`
	csiUser       = "system:serviceaccount:dpf-operator-system:snap-csi-plugin-controller"
	syncUser      = "system:serviceaccount:dpf-operator-system:snap-host-controller"
)

func log() string {
	return line("create", csiUser, attachmentRef, 201, "2026-01-02T03:04:05.100000Z") +
		line("patch", syncUser, statusRef, 200, "2026-01-02T03:04:05.200000Z") +
		line("update", "system:node:host-1", leaseRef, 200, "2026-01-02T03:04:05.300000Z") +
		line("patch", syncUser, heartbeatRef, 200, "2026-01-02T03:04:05.300000Z") +
		line("create", "admin", tokenRef, 201, "2026-01-02T03:04:05.300000Z") +
		line("patch", syncUser, statusRef, 409, "2026-01-02T03:04:06.000000Z")
}

func TestParseAudit(t *testing.T) {
	// The last line is still being written.
	events, err := parse(strings.NewReader(log()+`{"kind":"Ev`), Event.counts)
	if err != nil {
		t.Fatal(err)
	}
	want := []Row{
		{Cluster: "host", Who: "snap-host-controller", Verb: "patch", Resource: "dpuvolumeattachments.storage.dpu.nvidia.com/status", Count: 2, Refused: 1},
		{Cluster: "host", Who: "snap-host-controller", Verb: "patch", Resource: "dpustoragenodes.storage.moor.dev/status", Count: 1},
		{Cluster: "host", Who: "snap-csi-plugin-controller", Verb: "create", Resource: "dpuvolumeattachments.storage.dpu.nvidia.com", Count: 1},
	}
	if diff := cmp.Diff(want, Tally("host", events)); diff != "" {
		t.Error(diff)
	}
}

func TestParseAuditRefusesGarbage(t *testing.T) {
	if _, err := parse(strings.NewReader("garbage\n"), Event.counts); err == nil {
		t.Error("garbage is read as an event")
	}
}

func TestPerRun(t *testing.T) {
	events, err := parse(strings.NewReader(log()), Event.counts)
	if err != nil {
		t.Fatal(err)
	}
	at := func(s string) time.Time {
		out, err := time.Parse(time.RFC3339Nano, s)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for _, c := range []struct {
		name   string
		starts []time.Time
		want   []float64
	}{
		{"each in its run", []time.Time{at("2026-01-02T03:04:05.05Z"), at("2026-01-02T03:04:05.9Z")}, []float64{3, 1}},
		{"a run that wrote nothing", []time.Time{at("2026-01-02T03:04:05Z"), at("2026-01-02T03:04:05.3Z"), at("2026-01-02T03:04:05.4Z")}, []float64{2, 1, 1}},
		{"at the very start", []time.Time{at("2026-01-02T03:04:05.1Z"), at("2026-01-02T03:04:06Z")}, []float64{3, 1}},
		{"before the first", []time.Time{at("2026-01-02T03:04:05.15Z")}, []float64{3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, PerRun(events, c.starts)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestMark(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(path, []byte(log()), 0o600); err != nil {
		t.Fatal(err)
	}
	mark, err := MarkEnd(path)
	if err != nil {
		t.Fatal(err)
	}
	if events, err := mark.Since(); err != nil || len(events) != 0 {
		t.Fatalf("%d events, %v since the end", len(events), err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(line("delete", csiUser, attachmentRef, 200, "2026-01-02T03:04:07Z")); err != nil {
		t.Fatal(err)
	}
	events, err := mark.Since()
	if err != nil || len(events) != 1 || events[0].Verb != "delete" {
		t.Errorf("read %v, %v; want the one event after the mark", events, err)
	}
	if _, err := MarkEnd(path + ".none"); err == nil {
		t.Error("a log that is not there is no error")
	}
}

// TestMarkInALine: what is being written at the moment of the mark comes after it, whole.
func TestMarkInALine(t *testing.T) {
	last := line("delete", csiUser, attachmentRef, 200, "2026-01-02T03:04:07Z")
	for _, before := range []string{"", log(), strings.Repeat(log(), 40)} {
		for _, written := range []int{1, len(last) / 2, len(last) - 1} {
			path := filepath.Join(t.TempDir(), "audit.log")
			if err := os.WriteFile(path, []byte(before+last[:written]), 0o600); err != nil {
				t.Fatal(err)
			}
			mark, err := MarkEnd(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(before+last), 0o600); err != nil {
				t.Fatal(err)
			}
			if events, err := mark.All(); err != nil || len(events) != 1 || events[0].Verb != "delete" {
				t.Errorf("%d bytes before, %d of the line: %d events, %v", len(before), written, len(events), err)
			}
		}
	}
}

func TestPrintWrites(t *testing.T) {
	var out strings.Builder
	rows := []Row{{Cluster: "dpu", Who: "snap-controller", Verb: "update", Resource: "volumes/status", Count: 5, Refused: 1}}
	if err := Print(&out, rows, 4); err != nil {
		t.Fatal(err)
	}
	if want := "dpu      snap-controller  update  volumes/status  1.25               0.25     \n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("printed\n%s\nwant it to end in\n%s", out.String(), want)
	}
}

// TestMoorsOwnKindsCount: none of them may be left out of the comparison.
func TestMoorsOwnKindsCount(t *testing.T) {
	for _, resource := range []string{"dpustoragenodes", "dpuvolumes", "dpuvolumeattachments", "svvolumeattachments", "volumeattachments", "writerclaims"} {
		if uncounted[resource] {
			t.Errorf("%s are not counted", resource)
		}
	}
}
