package exposures

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// TestDefaults: without a clock, and with none who is told of withdrawals or tells of losses, it works.
func TestDefaults(t *testing.T) {
	k := newKit(t, map[string]*fakeService{"a": {shows: visible("d")}})
	e := New(Options{Root: k.root, Open: func(string) provisioner.DPU { return k.services["a"] }, Drain: time.Hour})
	undrained, err := e.During(t.Context(), k.onRecord("a", "d"), func() error { return e.Withdraw(t.Context(), "d") })
	if err != nil || undrained != k.Incarnation("a") { // of no boot that is known
		t.Errorf("%q, %v", undrained, err)
	}
	if left := e.Undrained("a", undrained); left != time.Hour {
		t.Errorf("takes %s", left)
	}
}

// TestList: what all services show is listed, and it is known whether all were heard. Where two have a
// device, the one counts that the host sees.
func TestList(t *testing.T) {
	hidden, seen := provisioner.Exposure{Device: "d", Hidden: true}, provisioner.Exposure{Device: "d", Visible: true}
	for name, tc := range map[string]struct {
		services map[string]*fakeService
		want     map[string]string // the service of each device that is shown
		complete bool
		fails    string
	}{
		"none is there":     {},
		"one shows nothing": {services: map[string]*fakeService{"a": {}}, complete: true},
		"two": {
			services: map[string]*fakeService{"a": {shows: visible("d")}, "b": {shows: visible("e")}},
			want:     map[string]string{"d": "a", "e": "b"}, complete: true,
		},
		"one does not answer": {
			services: map[string]*fakeService{"a": {shows: visible("d")}, "b": {down: errDown}},
			want:     map[string]string{"d": "a"}, fails: "SNAP service b: ",
		},
		"the first has it hidden": {
			services: map[string]*fakeService{"a": {shows: []provisioner.Exposure{hidden}}, "b": {shows: []provisioner.Exposure{seen}}},
			want:     map[string]string{"d": "b"}, complete: true,
		},
		"the second has it hidden": {
			services: map[string]*fakeService{"a": {shows: []provisioner.Exposure{seen}}, "b": {shows: []provisioner.Exposure{hidden}}},
			want:     map[string]string{"d": "a"}, complete: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t, tc.services)
			got, err := k.List(t.Context())
			if got.Complete != tc.complete || (err != nil) != (tc.fails != "") {
				t.Errorf("complete: %v, %v", got.Complete, err)
			}
			if err != nil && (!errors.Is(err, errDown) || !strings.Contains(err.Error(), tc.fails)) {
				t.Errorf("it says %v", err)
			}
			if !maps.Equal(got.Service, tc.want) {
				t.Errorf("services %v, want %v", got.Service, tc.want)
			}
			for device := range tc.want {
				if !got.Exposures[device].Visible {
					t.Errorf("%s is %+v", device, got.Exposures[device])
				}
			}
		})
	}
}

// TestUnreadableServices: a directory that cannot be read may hold the service that shows the device, so
// nothing counts as confirmed.
func TestUnreadableServices(t *testing.T) {
	k := newKit(t, map[string]*fakeService{"a": {}})
	k.Service("a") // it is used, and answers
	k.unreadable()
	if all, err := k.List(t.Context()); err == nil || !strings.Contains(err.Error(), k.root) || all.Complete {
		t.Errorf("listed: %v, complete: %v", err, all.Complete)
	}
	if err := k.Withdraw(t.Context(), "d"); err == nil || errors.Is(err, provisioner.ErrUnavailable) {
		t.Errorf("withdrawn: %v", err)
	}
	if err := k.ProbePath(t.Context(), "d"); err == nil || errors.Is(err, provisioner.ErrNotFound) {
		t.Errorf("asked: %v", err)
	}
	if _, ready := k.Functions(t.Context()); ready {
		t.Error("ready")
	}
	if _, _, err := k.Tidy(t.Context()); err == nil {
		t.Error("tidied")
	}
	if _, _, err := k.Paths(t.Context(), nil); err == nil {
		t.Error("the ways are known")
	}
}

// TestUsedServicesAreAsked: a service that was used is asked whether it has a socket or not, each once and
// in the same order each time, by the client that it was given first.
func TestUsedServicesAreAsked(t *testing.T) {
	services := map[string]*fakeService{}
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		services[name] = &fakeService{down: errors.New("of " + name)}
	}
	k := newKit(t, services)
	var opened []string
	open := k.Exposures.services.open
	k.Exposures.services.open = func(socket string) provisioner.DPU {
		opened = append(opened, socket)
		return open(socket)
	}
	want := "SNAP service a: of a\nSNAP service b: of b\nSNAP service c: of c\nSNAP service d: of d\nSNAP service e: of e\nSNAP service f: of f"
	for i := range 5 {
		if _, err := k.List(t.Context()); err == nil || err.Error() != want {
			t.Fatalf("round %d: %v", i, err)
		}
		if i == 2 {
			k.unlink("a")
			k.unlink("f")
		}
	}
	if len(opened) != len(services) {
		t.Errorf("opened %q", opened)
	}
}

// TestWithdraw: nil means that every service has confirmed it, also one that was used and has no socket;
// only a device of a known service needs no other.
func TestWithdraw(t *testing.T) {
	for name, tc := range map[string]struct {
		services map[string]*fakeService
		known    string
		unlinked string // has no socket any more, and was used
		fails    string
	}{
		"all answer":                   {services: map[string]*fakeService{"a": {shows: visible("d")}, "b": {}}},
		"one does not":                 {services: map[string]*fakeService{"a": {shows: visible("d")}, "b": {down: errDown}}, fails: "SNAP service b: does not answer"},
		"two do not":                   {services: map[string]*fakeService{"a": {down: errDown}, "b": {down: errDown}}, fails: "SNAP service a: does not answer\nSNAP service b: does not answer"},
		"another than the known":       {services: map[string]*fakeService{"a": {shows: visible("d")}, "b": {down: errDown}}, known: "a"},
		"the known does not":           {services: map[string]*fakeService{"a": {down: errDown}, "b": {}}, known: "a", fails: "SNAP service a: does not answer"},
		"the known has no socket":      {services: map[string]*fakeService{"a": {down: errDown}, "b": {}}, known: "a", unlinked: "a", fails: "SNAP service a: does not answer"},
		"one that is used has none":    {services: map[string]*fakeService{"a": {down: errDown}, "b": {}}, unlinked: "a", fails: "SNAP service a: does not answer"},
		"the known is asked just once": {services: map[string]*fakeService{"a": {shows: visible("d")}}, known: "a"},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t, tc.services)
			if tc.unlinked != "" {
				if tc.known == "" {
					k.Service(tc.unlinked)
				}
				k.unlink(tc.unlinked)
			}
			withdraw := k.Withdraw
			if tc.known != "" {
				withdraw = func(ctx context.Context, device string) error { return k.WithdrawFrom(ctx, tc.known, device) }
			}
			err := withdraw(t.Context(), "d")
			if err == nil && tc.fails != "" || err != nil && err.Error() != tc.fails {
				t.Errorf("got %v, want %q", err, tc.fails)
			}
			for of, s := range tc.services {
				if !slices.Equal(s.withdrawn, []string{"d"}) {
					t.Errorf("%s was told to withdraw %q", of, s.withdrawn)
				}
			}
			if told := k.told.Load() == 1; told != (err == nil) {
				t.Errorf("told of %d withdrawals, %v", k.told.Load(), err)
			}
		})
	}
}

// TestWithdrawWithoutServices: without a service it cannot be told whether the device is shown, and the
// message says where one was looked for.
func TestWithdrawWithoutServices(t *testing.T) {
	k := newKit(t, nil)
	k.must(os.Remove(k.root)) // as before the first of them has come
	err := k.Withdraw(t.Context(), "d")
	if !errors.Is(err, provisioner.ErrUnavailable) || !strings.Contains(err.Error(), "no SNAP service has a socket snap.sock under "+k.root) || k.told.Load() != 0 {
		t.Errorf("got %v, told %d times", err, k.told.Load())
	}
}

// TestTidy adds up what the services have removed, and what is left with each.
func TestTidy(t *testing.T) {
	services := map[string]*fakeService{"a": {gone: 1, left: 2}, "b": {gone: 3, left: 4}, "c": {gone: 5, left: 6}}
	k := newKit(t, services)
	if removed, left, err := k.Tidy(t.Context()); removed != 9 || left != 12 || err != nil {
		t.Errorf("removed %d, left %d, %v", removed, left, err)
	}
	services["b"].down = errDown
	if removed, left, err := k.Tidy(t.Context()); removed != 9 || left != 12 || !errors.Is(err, errDown) {
		t.Errorf("removed %d, left %d, %v", removed, left, err)
	}
}

// TestFunctions: the functions of all services are added up by type. What is left is not known, and no pod
// is to be sent here, while there is no service or one does not answer.
func TestFunctions(t *testing.T) {
	vf := func(total, free int) provisioner.FunctionCount {
		return provisioner.FunctionCount{Type: provisioner.VF, Total: total, Free: free}
	}
	pf := provisioner.FunctionCount{Type: provisioner.PF, Total: 1}
	two := map[provisioner.FunctionType]provisioner.FunctionCount{provisioner.VF: vf(12, 5), provisioner.PF: pf}
	for name, tc := range map[string]struct {
		services map[string]*fakeService
		want     map[provisioner.FunctionType]provisioner.FunctionCount
		ready    bool
	}{
		"none is there":             {want: map[provisioner.FunctionType]provisioner.FunctionCount{}},
		"one":                       {services: map[string]*fakeService{"a": {counts: []provisioner.FunctionCount{vf(12, 5), pf}}}, want: two, ready: true},
		"two":                       {services: map[string]*fakeService{"a": {counts: []provisioner.FunctionCount{vf(4, 2), pf}}, "b": {counts: []provisioner.FunctionCount{vf(8, 3)}}}, want: two, ready: true},
		"the first does not answer": {services: map[string]*fakeService{"a": {counts: []provisioner.FunctionCount{vf(4, 2), pf}, down: errDown}, "b": {counts: []provisioner.FunctionCount{vf(8, 3)}}}, want: two},
		"nor does the last":         {services: map[string]*fakeService{"a": {counts: []provisioner.FunctionCount{vf(4, 2), pf}}, "b": {counts: []provisioner.FunctionCount{vf(8, 3)}, down: errDown}}, want: two},
	} {
		t.Run(name, func(t *testing.T) {
			got, ready := newKit(t, tc.services).Functions(t.Context())
			if diff := cmp.Diff(tc.want, got); diff != "" || ready != tc.ready {
				t.Errorf("ready: %v, counts (-want +got):\n%s", ready, diff)
			}
		})
	}
}

// TestProbePath: the service that has the device asks its storage; what it says counts, and a service
// that cannot be asked may be the one.
func TestProbePath(t *testing.T) {
	refused := errors.New("refused")
	for name, tc := range map[string]struct {
		services map[string]*fakeService
		want     error
	}{
		"it answers":                {services: map[string]*fakeService{"a": {}, "b": {shows: visible("d")}}},
		"it does not":               {services: map[string]*fakeService{"a": {}, "b": {shows: visible("d"), probe: refused}}, want: refused},
		"none has it":               {services: map[string]*fakeService{"a": {}, "b": {}}, want: provisioner.ErrNotFound},
		"there is no service":       {want: provisioner.ErrNotFound},
		"one does not answer first": {services: map[string]*fakeService{"a": {down: errDown}, "b": {shows: visible("d")}}, want: errDown},
	} {
		t.Run(name, func(t *testing.T) {
			err := newKit(t, tc.services).ProbePath(t.Context(), "d")
			if !errors.Is(err, tc.want) || tc.want == nil && err != nil {
				t.Errorf("got %v, want %v", err, tc.want)
			}
			if errors.Is(tc.want, provisioner.ErrNotFound) && !strings.Contains(err.Error(), "device d: no SNAP service has it") {
				t.Errorf("it says %v", err)
			}
		})
	}
}

// TestPathsAreKnown: where all services answer there is nothing to complain of.
func TestPathsAreKnown(t *testing.T) {
	k := newKit(t, nil)
	k.socket("a")
	k.Exposures.services.open = func(string) provisioner.DPU { return service{device: "d"} }
	paths, heard, err := k.Paths(t.Context(), []string{"d"})
	if err != nil || len(paths) != 1 || !slices.Equal(heard, []string{"a"}) {
		t.Errorf("%+v, heard %q, %v", paths, heard, err)
	}
}
