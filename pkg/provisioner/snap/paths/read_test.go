package paths

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// controller is one with a path for each word.
func controller(name string, words ...string) snaprpc.NVMeController {
	c := snaprpc.NVMeController{Name: name}
	for _, word := range words {
		c.Paths = append(c.Paths, snaprpc.NVMePath{State: word})
	}
	return c
}

func TestStateOf(t *testing.T) {
	for _, tc := range []struct {
		name  string
		words []string
		want  provisioner.PathState
		says  string
	}{
		{"works", []string{"enabled"}, provisioner.PathConnected, "enabled"},
		{"is made anew", []string{"reconnect_is_delayed"}, provisioner.PathReconnecting, "reconnect_is_delayed"},
		{"is reset", []string{"resetting"}, provisioner.PathReconnecting, "resetting"},
		{"was given up", []string{"failed"}, provisioner.PathFailed, "failed"},
		{"goes", []string{"deleting"}, provisioner.PathFailed, "deleting"},
		{"was switched off", []string{"disabled"}, provisioner.PathFailed, "disabled"},
		{"one of two works", []string{"failed", "enabled"}, provisioner.PathConnected, "failed, enabled"},
		{"the first of two works", []string{"enabled", "resetting"}, provisioner.PathConnected, "enabled, resetting"},
		{"one of two is tried", []string{"resetting", "failed"}, provisioner.PathReconnecting, "resetting, failed"},
		{"none of three is tried", []string{"failed", "disabled", "deleting"}, provisioner.PathFailed, "failed, disabled, deleting"},
		{"a word of a later version", []string{"quiescing"}, provisioner.PathReconnecting, "quiescing"},
		{"that word beside one that works", []string{"quiescing", "enabled"}, provisioner.PathConnected, "quiescing, enabled"},
		{"that word beside one that ended", []string{"failed", "quiescing"}, provisioner.PathReconnecting, "failed, quiescing"},
		{"another case is another word", []string{"Enabled"}, provisioner.PathReconnecting, "Enabled"},
		{"no word", []string{""}, provisioner.PathUnknown, ""},
		{"no word beside one", []string{"", "failed"}, provisioner.PathFailed, "failed"},
		{"no path", nil, provisioner.PathUnknown, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got, says := stateOf(controller("c", tc.words...)); got != tc.want || says != tc.says {
				t.Errorf("%q (%s), want %q (%s)", got, says, tc.want, tc.says)
			}
		})
	}
}

// TestConnectionsOf: the connections that are there are named by the storage and the number that it gave, as
// each storage counts for itself, whatever the order in which they are told.
func TestConnectionsOf(t *testing.T) {
	at := func(address string) snaprpc.TransportID {
		return snaprpc.TransportID{TrType: "TCP", TrAddr: address, TrSvcID: "4420", SubNQN: "nqn.v"}
	}
	path := func(state, address string, number uint16) snaprpc.NVMePath {
		return snaprpc.NVMePath{State: state, TrID: at(address), Controller: &number}
	}
	one, two := path("enabled", "192.0.2.1", 1), path("enabled", "192.0.2.2", 7)
	nameOfOne, nameOfTwo := "nqn.v at TCP 192.0.2.1 port 4420 controller 1", "nqn.v at TCP 192.0.2.2 port 4420 controller 7"
	for name, tc := range map[string]struct {
		paths []snaprpc.NVMePath
		want  string
	}{
		"one":                       {[]snaprpc.NVMePath{one}, nameOfOne},
		"the number 0":              {[]snaprpc.NVMePath{path("enabled", "192.0.2.1", 0)}, "nqn.v at TCP 192.0.2.1 port 4420 controller 0"},
		"two":                       {[]snaprpc.NVMePath{one, two}, nameOfOne + ", " + nameOfTwo},
		"two, in another order":     {[]snaprpc.NVMePath{two, one}, nameOfOne + ", " + nameOfTwo},
		"one of two is lost":        {[]snaprpc.NVMePath{path("resetting", "192.0.2.1", 1), two}, nameOfTwo},
		"the number is another's":   {[]snaprpc.NVMePath{path("enabled", "192.0.2.2", 1)}, "nqn.v at TCP 192.0.2.2 port 4420 controller 1"},
		"the only one is lost":      {[]snaprpc.NVMePath{path("reconnect_is_delayed", "192.0.2.1", 1)}, ""},
		"a state that is not known": {[]snaprpc.NVMePath{path("quiescing", "192.0.2.1", 1)}, ""},
		"it has no state":           {[]snaprpc.NVMePath{path("", "192.0.2.1", 1)}, ""},
		"it has no number":          {[]snaprpc.NVMePath{{State: "enabled", TrID: at("192.0.2.1")}}, ""},
		"none":                      {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := snaprpc.NVMeController{Name: "c", Paths: tc.paths}
			if got := read([]string{"c"}, []snaprpc.NVMeController{c}, nil)[0].Connections; got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

func TestControllerOf(t *testing.T) {
	all := []snaprpc.NVMeController{controller("nvme_v"), controller("vol"), controller("n1"), controller("nvme_vn2")}
	for device, want := range map[string]string{
		"nvme_vn1": "nvme_v", "nvme_vn12": "nvme_v", "nvme_v": "nvme_v",
		"nvme_vn2":   "nvme_vn2", // the device's own name counts first
		"nvme_vn2n1": "nvme_vn2",
		"vol":        "vol", "voln1": "vol", "n1n1": "n1",
		"n1p0": "", "nvme_vn": "", "nvme_vn1x": "", "nvme_vx1": "", "other": "", "othern1": "", "": "", "n2": "", "nvme_vn-1": "",
	} {
		c, ok := controllerOf(device, all)
		if c.Name != want || ok != (want != "") {
			t.Errorf("%q has the controller %q (%v), want %q", device, c.Name, ok, want)
		}
	}
	if c, ok := controllerOf("vol", nil); ok {
		t.Errorf("%q of no controllers", c.Name)
	}
}

func depth(n uint64) *uint64 { return &n }

func TestRead(t *testing.T) {
	controllers := []snaprpc.NVMeController{controller("c", "enabled"), controller("gone", "failed"), controller("empty")}
	unknown := func(name string) provisioner.Path { return provisioner.Path{Device: name, InFlight: -1} }
	connected := provisioner.Path{Device: "cn1", State: provisioner.PathConnected, Detail: "enabled", InFlight: -1}
	with := func(p provisioner.Path, inFlight, completed int64) provisioner.Path {
		p.InFlight, p.Completed = inFlight, completed
		return p
	}
	for _, tc := range []struct {
		name    string
		devices []string
		stats   []snaprpc.BdevIOStat
		want    []provisioner.Path
		sample  []string
	}{
		{name: "nothing", want: []provisioner.Path{}},
		{name: "no counts", devices: []string{"cn1"}, want: []provisioner.Path{connected}},
		{
			name: "not sampled yet", devices: []string{"cn1"}, stats: []snaprpc.BdevIOStat{{Name: "cn1", ReadOps: 3}},
			want: []provisioner.Path{with(connected, -1, 3)}, sample: []string{"cn1"},
		},
		{
			name: "before the first sample", devices: []string{"cn1"},
			stats: []snaprpc.BdevIOStat{{Name: "cn1", QDPeriod: 1, SampledDepth: depth(math.MaxUint64)}},
			want:  []provisioner.Path{connected},
		},
		{
			name: "stuck", devices: []string{"cn1"}, stats: []snaprpc.BdevIOStat{{Name: "cn1", ReadOps: 3, QDPeriod: 1, SampledDepth: depth(8)}},
			want: []provisioner.Path{with(connected, 8, 3)},
		},
		{
			name: "errors end operations too", devices: []string{"cn1"},
			stats: []snaprpc.BdevIOStat{{Name: "cn1", ReadOps: 1, WriteOps: 1, UnmapOps: 1, CopyOps: 1, Errors: map[string]uint64{"nvme_error": 2}, QDPeriod: 1, SampledDepth: depth(0)}},
			want:  []provisioner.Path{with(connected, 0, 6)},
		},
		{ // what came before is not known here: a service that began anew counts from 0
			name: "counts that went back", devices: []string{"cn1"}, stats: []snaprpc.BdevIOStat{{Name: "cn1", QDPeriod: 1, SampledDepth: depth(1)}},
			want: []provisioner.Path{with(connected, 1, 0)},
		},
		{
			name: "counts that wrap around", devices: []string{"cn1"},
			stats: []snaprpc.BdevIOStat{{Name: "cn1", ReadOps: math.MaxUint64, WriteOps: 3, QDPeriod: 1, SampledDepth: depth(0)}},
			want:  []provisioner.Path{with(connected, 0, 2)},
		},
		{
			name: "counts beyond what a number holds", devices: []string{"cn1"},
			stats: []snaprpc.BdevIOStat{{Name: "cn1", ReadOps: math.MaxInt64 + 6, QDPeriod: 1, SampledDepth: depth(0)}},
			want:  []provisioner.Path{with(connected, 0, 5)},
		},
		{
			name: "several, and others' counts", devices: []string{"emptyn1", "file", "gonen1"},
			stats: []snaprpc.BdevIOStat{{Name: "another"}, {Name: "file", ReadOps: 1}, {Name: "gonen1", QDPeriod: 1, SampledDepth: depth(0)}},
			want: []provisioner.Path{
				unknown("emptyn1"), with(unknown("file"), -1, 1),
				{Device: "gonen1", State: provisioner.PathFailed, Detail: "failed"},
			},
			sample: []string{"file"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, read(tc.devices, controllers, tc.stats)); diff != "" {
				t.Errorf("paths (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.sample, unsampled(tc.devices, tc.stats)); diff != "" {
				t.Errorf("to sample (-want +got):\n%s", diff)
			}
		})
	}
}
