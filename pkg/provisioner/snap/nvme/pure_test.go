package nvme

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner"
)

func TestNQN(t *testing.T) {
	const all = maxNQN - len(Prefix)
	cases := map[string]struct{ device, cleaned string }{
		"replaced":         {"nvme_pvc-1n1", "nvme-pvc-1n1"},
		"kept":             {"A.b-9", "A.b-9"},
		"every odd rune":   {"a/b c:ü", "a-b-c--"},
		"cut to the bound": {strings.Repeat("x", 300), strings.Repeat("x", all-1-hashDigits)},
		"just fits":        {strings.Repeat("x", all-1-hashDigits), strings.Repeat("x", all-1-hashDigits)},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := NQN(c.device)
			if len(got) > maxNQN || got[:len(got)-hashDigits] != Prefix+c.cleaned+"-" {
				t.Fatalf("NQN(%q) = %q (%d bytes), want %q and the hash", c.device, got, len(got), Prefix+c.cleaned+"-")
			}
			if NQN(got) != got {
				t.Fatalf("NQN of an NQN differs: %q", NQN(got))
			}
		})
	}
	// The hash is what tells apart names that look alike once cleaned; the
	// value is sha256("a_b").
	if a, b := NQN("a_b"), NQN("a-b"); a == b || a != Prefix+"a-b-648fa9b3" {
		t.Fatalf("NQN(a_b) = %q, NQN(a-b) = %q", a, b)
	}
}

func vfs(free ...string) []snaprpc.Function {
	pf := snaprpc.Function{EmulationType: snaprpc.EmulationNVMe, PCIBDF: "26:00.0", CtrlID: "NVMeCtrl1"}
	for _, f := range free {
		address, ctrl, _ := strings.Cut(f, "=")
		pf.VFs = append(pf.VFs, snaprpc.Function{EmulationType: snaprpc.EmulationNVMe, PCIBDF: address, CtrlID: ctrl})
	}
	return []snaprpc.Function{{EmulationType: "VBLK", PCIBDF: "25:00.0", VFs: []snaprpc.Function{{EmulationType: "VBLK", PCIBDF: "25:00.2"}}}, pf}
}

func TestChoose(t *testing.T) {
	static := vfs()
	static[1].CtrlID = ""
	plugged := vfs()
	plugged[1].CtrlID, plugged[1].Hotplugged = "", true
	vf := func(recorded string) wanted { return wanted{device: "d", kind: provisioner.VF, recorded: recorded} }
	cases := map[string]struct {
		functions []snaprpc.Function
		want      wanted
		reserved  map[string]string
		address   string
		err       error
	}{
		"first free":             {functions: vfs("26:00.2=C2", "26:00.3", "26:00.4"), want: vf(""), address: "26:00.3"},
		"listing order":          {functions: vfs("26:00.4", "26:00.3"), want: vf(""), address: "26:00.4"},
		"other emulation":        {functions: vfs()[:1], want: vf(""), err: provisioner.ErrExhausted},
		"none":                   {functions: nil, want: vf(""), err: provisioner.ErrExhausted},
		"all taken":              {functions: vfs("26:00.2=C2"), want: vf(""), err: provisioner.ErrExhausted},
		"not enumerated":         {functions: vfs("26:00.2=C2", "00:00.0"), want: vf(""), err: provisioner.ErrUnavailable},
		"recorded":               {functions: vfs("26:00.2", "26:00.3"), want: vf("26:00.3"), address: "26:00.3"},
		"recorded with domain":   {functions: vfs("26:00.2", "26:00.3"), want: vf("0000:26:00.3"), address: "26:00.3"},
		"recorded in capitals":   {functions: vfs("26:00.2", "26:0a.3"), want: vf("26:0A.3"), address: "26:0a.3"},
		"recorded is taken":      {functions: vfs("26:00.2", "26:00.3=C2"), want: vf("26:00.3"), err: provisioner.ErrInUse},
		"recorded is gone":       {functions: vfs("26:00.2"), want: vf("26:00.3"), err: provisioner.ErrUnavailable},
		"recorded is pending":    {functions: vfs("00:00.0"), want: vf("00:00.0"), err: provisioner.ErrUnavailable},
		"reserved for another":   {functions: vfs("26:00.2", "26:00.3"), want: vf(""), reserved: map[string]string{"0000:26:00.2": "e"}, address: "26:00.3"},
		"reserved for itself":    {functions: vfs("26:00.2", "26:00.3"), want: vf(""), reserved: map[string]string{"26:00.2": "d"}, address: "26:00.2"},
		"all reserved":           {functions: vfs("26:00.2"), want: vf(""), reserved: map[string]string{"26:00.2": "e"}, err: provisioner.ErrExhausted},
		"static PF":              {functions: static, want: wanted{kind: provisioner.PF}, address: "26:00.0"},
		"static PF taken":        {functions: vfs("26:00.2"), want: wanted{kind: provisioner.PF}, err: provisioner.ErrExhausted},
		"hot-plugged PF of some": {functions: plugged, want: wanted{kind: provisioner.PF}, err: provisioner.ErrExhausted},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := choose(c.functions, c.want, c.reserved)
			if !errors.Is(err, c.err) || (err == nil && got.PCIBDF != c.address) || (c.err == nil && err != nil) {
				t.Fatalf("choose = %q, %v; want %q, %v", got.PCIBDF, err, c.address, c.err)
			}
		})
	}
}

func TestConvert(t *testing.T) {
	got, err := convert(map[string]string{"num_queues": "4", "compare": "true", "snapshot": "false", "quirks": "0x2", "mdts": "-1"})
	want := map[string]any{"num_queues": int64(4), "compare": true, "snapshot": false, "quirks": "0x2", "mdts": int64(-1)}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Fatalf("convert: %v, (-want +got):\n%s", err, diff)
	}
	for _, key := range chosenHere {
		if _, err := convert(map[string]string{key: "1"}); !errors.Is(err, provisioner.ErrInvalid) || !strings.Contains(err.Error(), key) {
			t.Errorf("convert accepts %q: %v", key, err)
		}
	}
}

// TestChooseSpare: a function that the host has may have kept requests, which are served by the
// next controller there: it is taken for the volume alone whose they are, to recover them.
func TestChooseSpare(t *testing.T) {
	function := func(address, ctrl string) snaprpc.Function {
		return snaprpc.Function{EmulationType: snaprpc.EmulationNVMe, Hotplugged: true, PCIBDF: address, VUID: "vuid-" + address, CtrlID: ctrl}
	}
	const mine, others = "27:00.0", "28:00.0"
	for name, tc := range map[string]struct {
		functions         []snaprpc.Function
		pending, recovers bool
		want              string
	}{
		"the one on record, to recover":                 {[]snaprpc.Function{function(others, ""), function(mine, "")}, true, true, mine},
		"the same, and nothing is to be recovered":      {[]snaprpc.Function{function(others, ""), function(mine, "")}, true, false, ""},
		"another's, to recover":                         {[]snaprpc.Function{function(others, "")}, true, true, ""},
		"the one on record is taken":                    {[]snaprpc.Function{function(others, ""), function(mine, "c")}, true, true, ""},
		"one that the host does not have, to recover":   {[]snaprpc.Function{function(others, ""), function(snaprpc.PendingBDF, "")}, true, true, snaprpc.PendingBDF},
		"one that the host does not have":               {[]snaprpc.Function{function(snaprpc.PendingBDF, "")}, true, false, snaprpc.PendingBDF},
		"one that the host does not have, and must":     {[]snaprpc.Function{function(snaprpc.PendingBDF, "")}, false, false, ""},
		"one that the host does not have, with another": {[]snaprpc.Function{function(snaprpc.PendingBDF, "c")}, true, false, ""},
		"none": {nil, true, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f, found := chooseSpare(tc.functions, wanted{device: "d", recorded: mine}, tc.pending, tc.recovers)
			if f.PCIBDF != tc.want || found != (tc.want != "") {
				t.Errorf("%q, %v; want %q", f.PCIBDF, found, tc.want)
			}
		})
	}
}
