package program

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moor-storage/moor/test/bench/audit"
)

func TestMetrics(t *testing.T) {
	m, err := parse("# HELP workqueue_depth x\n# TYPE workqueue_depth gauge\nworkqueue_depth{name=\"a b\"} 3\nworkqueue_depth{name=\"c\"} 4\nworkqueue_depths 9\n# TYPE n counter\nn{v=\"1\"} 1e+01\n")
	if err != nil {
		t.Fatal(err)
	}
	if got := m.sum("workqueue_depth"); got != 7 {
		t.Errorf("got %v of %v", got, m)
	}
	if got := m.by("workqueue_depth", "name"); got["a b"] != 3 || got["c"] != 4 || len(got) != 2 {
		t.Errorf("by name: %v", got)
	}
	if got := m.sum("n"); got != 10 {
		t.Errorf("got %v", got)
	}
	if _, err := parse("no metric"); err == nil {
		t.Error("what is no text of metrics is no error")
	}
}

func TestQuiet(t *testing.T) {
	now := time.Unix(0, 0)
	q := quiet{least: 10, few: 2}
	look := func(ready bool, waiting, passes float64) bool {
		now = now.Add(time.Second)
		return q.look(ready, Load{Waiting: waiting, Passes: passes}, now)
	}
	for range 2 * looks {
		if look(false, 0, 10) || look(true, 3, 10) || look(true, 0, 9) {
			t.Fatal("not ready, busy, or not through, and settled")
		}
	}
	for i := range looks {
		if done := look(true, 2, 10); done != (i == looks-1) {
			t.Errorf("after %d looks: %v", i+1, done)
		}
	}
	if got := now.Sub(q.since); got != (looks-1)*time.Second {
		t.Errorf("settled %s ago", got)
	}
}

func TestCount(t *testing.T) {
	var events []audit.Event
	for _, line := range []string{
		`{"verb": "get", "user": {"username": "system:serviceaccount:ns:a"}, "objectRef": {"resource": "writerclaims", "apiGroup": "storage.moor.dev"}}`,
		`{"verb": "list", "requestURI": "/apis/storage.moor.dev/v1alpha1/dpustoragenodes?limit=1", "user": {"username": "system:serviceaccount:ns:b"}, "objectRef": {"resource": "dpustoragenodes", "apiGroup": "storage.moor.dev"}}`,
		`{"verb": "list", "requestURI": "/api/v1/pods?limit=500&resourceVersion=0", "user": {"username": "system:serviceaccount:ns:a"}, "objectRef": {"resource": "pods"}}`,
		`{"verb": "list", "requestURI": "/api/v1/pods", "user": {"username": "system:serviceaccount:ns:b"}, "objectRef": {"resource": "pods"}}`,
		`{"verb": "watch", "user": {"username": "system:serviceaccount:ns:a"}, "objectRef": {"resource": "pods"}}`,
		`{"verb": "patch", "user": {"username": "system:serviceaccount:ns:a"}, "objectRef": {"resource": "leases", "apiGroup": "coordination.k8s.io"}}`,
		`{"verb": "patch", "user": {"username": "system:serviceaccount:ns:a"}, "objectRef": {"resource": "dpustoragenodes", "subresource": "status", "apiGroup": "storage.moor.dev"}, "requestObject": {"status": {"dpu": {"sequence": 2}}}}`,
		`{"verb": "patch", "user": {"username": "system:serviceaccount:ns:a"}, "objectRef": {"resource": "dpustoragenodes", "subresource": "status", "apiGroup": "storage.moor.dev"}, "requestObject": {"status": {"conditions": []}}}`,
		`{"verb": "create", "user": {"username": "system:serviceaccount:ns:b"}, "objectRef": {"resource": "events"}}`,
		`{"verb": "create", "user": {"username": "system:serviceaccount:ns:b"}, "objectRef": {"resource": "events"}, "requestObject": {"involvedObject": {"kind": "Lease"}}}`,
		`{"verb": "create", "user": {"username": "system:serviceaccount:ns:b"}, "objectRef": {"resource": "events", "apiGroup": "events.k8s.io"}, "requestObject": {"regarding": {"kind": "Lease"}}}`,
		`{"verb": "create", "user": {"username": "system:serviceaccount:ns:b"}, "objectRef": {"resource": "events", "apiGroup": "events.k8s.io"}, "requestObject": {"regarding": {"kind": "Pod"}}}`,
		`{"verb": "create", "user": {"username": "system:serviceaccount:ns:b"}, "objectRef": {"resource": "subjectaccessreviews", "apiGroup": "authorization.k8s.io"}}`,
	} {
		var e audit.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	if got := Count(events, ""); got.Reads != 2 || got.Writes != 3 || got.Beats != 5 {
		t.Errorf("all: %+v", got)
	}
	if got := Count(events, "a"); got.Reads != 1 || got.Writes != 1 || got.Beats != 2 {
		t.Errorf("a: %+v", got)
	}
}

// TestPrint: all is told, what is beats after what is not, the most frequent first.
func TestPrint(t *testing.T) {
	r := Requests{What: map[string]int{"a get pods": 2, "a list pods": 30}, Aside: map[string]int{"b patch leases": 99}}
	var out strings.Builder
	if err := r.Print(&out); err != nil {
		t.Fatal(err)
	}
	want := "" +
		"  requests  account, verb, resource        \n" +
		"  30        a list pods                    \n" +
		"  2         a get pods                     \n" +
		"  99        b patch leases           beat  \n"
	if out.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", out.String(), want)
	}
	if got := r.String(); got != "30 a list pods, 2 a get pods" {
		t.Errorf("in one line: %s", got)
	}
}

// TestEndedByItself: who reads that a program ended reads why, also where its log is
// gone with the machine.
func TestEndedByItself(t *testing.T) {
	bin := t.TempDir()
	script := "#!/bin/sh\nseq 1 20\necho address already in use >&2\nexit 1\n"
	if err := os.WriteFile(filepath.Join(bin, "server"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	p := &Program{Name: "server"}
	if err := p.Start(t.Context(), bin, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	<-p.ended
	err := p.Running()
	if err == nil || !strings.HasSuffix(err.Error(), "\n20\naddress already in use") || strings.Contains(err.Error(), "\n11\n") {
		t.Errorf("%v; want the last %d lines of its log", err, tailLines)
	}
}
