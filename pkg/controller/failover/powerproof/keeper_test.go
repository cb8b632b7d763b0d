package powerproof

import (
	"errors"
	"strings"
	"testing"
	"time"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/pkg/power"
	"github.com/moor-storage/moor/pkg/writer"
)

// TestHostOff: nothing is done before other proofs were waited for; then the host is
// switched off, once, and that is a proof once it was read for long enough.
func TestHostOff(t *testing.T) {
	s := newKit(t, poweredByHost)
	if p := s.run(14); p != nil || len(s.host.asked) > 0 {
		t.Fatalf("asked too soon: %v, %+v", s.host.asked, p)
	}
	s.run(2)
	s.wantAsked(s.host, "off")
	s.wantProof(s.run(20), false, "are needed")
	s.wantProof(s.run(15), true, "the host with serial number H")
	s.wantAsked(s.host, "off")
	s.wantAsked(s.dpu, "")
	if s.control().Status.HostOff == nil {
		t.Error("not on record")
	}
}

// TestAlone: where no other proof can come, none is waited for. Of a host that was off already,
// and its DPU silent, less readings are needed.
func TestAlone(t *testing.T) {
	for is, takes := range map[power.State]int{power.StateOn: 31, power.StateOff: 16} {
		s := newKit(t, poweredByHost)
		s.host.is.System, s.q.Alone, s.heard = is, true, s.Clock.Now().Add(-writer.PowerSilence)
		s.run(1)
		s.wantAsked(s.host, "off")
		s.wantProof(s.run(takes-2), false, "are needed")
		s.wantProof(s.run(1), true, "")
		if len(s.k.reads) == 0 {
			t.Error("a proof starts no pass")
		}
	}
}

// TestDPUReset: the same of the DPU, which is reset once; and once more for a claim that
// went to Fencing after that.
func TestDPUReset(t *testing.T) {
	s := newKit(t)
	s.run(16)
	s.wantAsked(s.dpu, "reset")
	s.wantProof(s.run(7), false, "may take until")
	s.wantProof(s.run(8), true, "the DPU with serial number D was reset")
	s.wantAsked(s.dpu, "reset")
	s.wantAsked(s.host, "")
	s.q.Claim = "other"
	s.run(16)
	s.wantProof(s.run(1), false, "since the right to write is being taken back")
	s.wantAsked(s.dpu, "reset")
	s.run(60)
	s.wantAsked(s.dpu, "reset reset")
	s.wantProof(s.run(1), true, "was reset")
}

// TestAnotherEpoch: what was done for an epoch proves nothing of a later one of the same claim,
// under which the DPU may have shown the volume since.
func TestAnotherEpoch(t *testing.T) {
	s := newKit(t)
	s.wantProof(s.run(33), true, "was reset")
	s.q.Epoch++
	if p := s.ask(); p != nil {
		t.Fatalf("known of an epoch that is being taken back only now: %+v", p)
	}
	s.wantProof(s.run(16), false, "since the right to write is being taken back")
	s.k.Done("a", s.q.Claim)
	if p := s.ask(); p != nil {
		t.Errorf("known of a claim that was free: %+v", p)
	}
}

// TestRestart: a keeper that remembers nothing proves nothing until it has asked and read
// anew, and resets a DPU no sooner than a minute after it was reset.
func TestRestart(t *testing.T) {
	s := newKit(t, poweredByHost)
	s.wantProof(s.run(50), true, "")
	s.restart()
	if p := s.ask(); p != nil {
		t.Fatalf("known after a restart: %+v", p)
	}
	s.wantProof(s.run(28), false, "are needed")
	s.wantProof(s.run(6), true, "")
	s.wantAsked(s.host, "off off")

	s = newKit(t)
	s.wantProof(s.run(33), true, "")
	s.restart()
	s.wantProof(s.run(20), false, "is reset again 1m0s later at the earliest")
	s.wantAsked(s.dpu, "reset")
	s.wantProof(s.run(55), true, "")
	s.wantAsked(s.dpu, "reset reset")
}

// TestLies: each way in which a BMC is wrong leaves the DPU unproven for five minutes, with
// words; and nothing is done to another machine.
func TestLies(t *testing.T) {
	for name, c := range map[string]struct {
		byHost bool
		lie    func(s *kit)
		asked  string // at least; "-": nothing at all
		words  string
	}{
		"accepts and does nothing":       {true, func(s *kit) { s.host.idle = true }, "off off off", "is On at"},
		"resets nothing":                 {false, func(s *kit) { s.dpu.idle = true }, "reset reset reset", "is not seen"},
		"another machine":                {true, func(s *kit) { s.host.is.Is.SerialNumber = "X" }, "-", `serial number "X"`},
		"another card":                   {false, func(s *kit) { s.dpu.is.Is.SerialNumber = "X" }, "-", `serial number "X"`},
		"out of reach":                   {true, func(s *kit) { s.host.fails = power.ErrUnreachable }, "-", "does not answer"},
		"wrong credentials":              {false, func(s *kit) { s.dpu.fails = power.ErrCredentials }, "-", "refuses the credentials"},
		"refuses":                        {true, func(s *kit) { s.host.refuses = power.ErrRefused }, "-", "refuses the request"},
		"off while its DPU lives":        {true, func(s *kit) { s.host.is.System = power.StateOff }, "off", "without a sign of life"},
		"reset while its DPU lives":      {false, func(*kit) {}, "reset", "is heard since"},
		"says off, and its chassis's on": {true, func(s *kit) { s.host.is.Chassis = power.StateOn }, "off", "its chassis to be On"},
	} {
		var more []func(*moorv1alpha1.PowerControlSpec)
		if c.byHost {
			more = append(more, poweredByHost)
		}
		s := newKit(t, more...)
		c.lie(s)
		m := s.dpu
		if c.byHost {
			m = s.host
		}
		last := ""
		for range 300 {
			if strings.Contains(name, "its DPU lives") && int(s.Clock.Now().Unix())%10 == 0 {
				s.heard = s.Clock.Now()
			}
			p := s.run(1)
			if p == nil {
				continue
			}
			if p.Asked && strings.Contains(p.Words(), c.words) || !p.Asked {
				last = p.Words()
			}
			if p.Asked && p.Words() == "" {
				t.Fatalf("%s: proven: %+v", name, p)
			}
		}
		if !strings.Contains(last, c.words) {
			t.Errorf("%s: told %q, want %q", name, last, c.words)
		}
		if got := strings.Join(m.asked, " "); c.asked == "-" && got != "" || c.asked != "-" && !strings.HasPrefix(got, c.asked) {
			t.Errorf("%s: asked for %q, want %q", name, got, c.asked)
		}
	}
}

// TestComesBack: a machine that comes back by itself voids what was read, and is switched
// off again.
func TestComesBack(t *testing.T) {
	s := newKit(t, poweredByHost)
	s.run(35)
	s.host.is.System = power.StateOn
	s.wantProof(s.run(3), false, "is On at")
	s.run(75)
	s.wantAsked(s.host, "off off")
	s.wantProof(s.run(1), true, "")
}

// TestChoose: which machine is touched, and whether that proves something.
func TestChoose(t *testing.T) {
	none := func(s *moorv1alpha1.PowerControlSpec) { s.Host, s.DPU = nil, nil }
	hostAlone := func(s *moorv1alpha1.PowerControlSpec) { s.DPU = nil }
	device := func(s *moorv1alpha1.PowerControlSpec) {
		s.DPU, s.DPUDevice = nil, &moorv1alpha1.DPUDeviceBMC{Name: "d"}
	}
	for name, c := range map[string]struct {
		spec           func(*moorv1alpha1.PowerControlSpec)
		mayOff, mayDPU bool
		machine        machine
		words          string
	}{
		"both dead":                          {nil, true, true, theDPU, ""},
		"both dead, one power":               {poweredByHost, true, true, theHost, ""},
		"both dead, by DPF":                  {device, true, true, theDPU, ""},
		"both dead, the host's alone":        {hostAlone, true, true, "", "does not say that the DPU has its power from the host"},
		"host dead, DPU heard":               {nil, true, false, theHost, "so that DPU dpu-a, which is heard, can let go"},
		"host dead, DPU heard, one power":    {poweredByHost, true, false, theHost, ""},
		"host lives, DPU silent":             {nil, false, true, theDPU, ""},
		"host lives, DPU silent, one power":  {poweredByHost, false, true, theDPU, ""},
		"host lives, DPU silent, the host's": {hostAlone, false, true, "", "no BMC that may be asked now"},
		"host lives, DPU heard":              {poweredByHost, false, false, "", "neither is touched"},
		"no BMC, DPU heard":                  {none, true, false, "", "no BMC that may be asked now"},
		"no BMC":                             {none, true, true, "", "no BMC that may be asked now"},
	} {
		s := newKit(t)
		spec := s.control().Spec
		if c.spec != nil {
			c.spec(&spec)
		}
		if got := choose(spec, Question{Host: "a", DPU: "dpu-a", MayOff: c.mayOff, MayReset: c.mayDPU}); got.machine != c.machine || (c.words == "") != (got.words == "") || !strings.Contains(got.words, c.words) {
			t.Errorf("%s: %+v, want %+v", name, got, c)
		}
	}
}

// TestHostOffProvesNothingOfACard: a host that is off proves nothing of a card that has
// power of its own, and of one that is heard.
func TestHostOffProvesNothingOfACard(t *testing.T) {
	s := newKit(t)
	s.q.MayReset = false
	s.wantProof(s.run(120), false, "can let go of what it shows")
	s.wantAsked(s.host, "off")
	s.wantAsked(s.dpu, "")
}

// TestGiveBack: a host is switched on again if it was switched off here, nothing is taken
// from it any more, and the installer wants that; and is forgotten once it is on.
func TestGiveBack(t *testing.T) {
	for _, policy := range []moorv1alpha1.PowerOnPolicy{moorv1alpha1.PowerOnManual, moorv1alpha1.PowerOnReleased} {
		s := newKit(t, poweredByHost, func(p *moorv1alpha1.PowerControlSpec) { p.PowerOn = policy })
		give := func() string {
			words, err := s.k.Release(t.Context(), "a")
			if err == nil {
				err = s.step()
			}
			if err != nil {
				t.Fatal(err)
			}
			return words
		}
		if words := give(); words != "" || len(s.host.asked) > 0 {
			t.Errorf("%s: a host that was not switched off is switched on: %q", policy, words)
		}
		s.run(45)
		if err := s.step(); err != nil || len(s.host.asked) != 1 {
			t.Fatalf("%s: asked for %q while its claim is in Fencing, %v", policy, s.host.asked, err)
		}
		words := give()
		if policy == moorv1alpha1.PowerOnManual {
			s.wantAsked(s.host, "off")
			if !strings.Contains(words, "switch it on when it may run again") {
				t.Errorf("told %q", words)
			}
			s.host.is.System = power.StateOn
		}
		if policy == moorv1alpha1.PowerOnReleased { // it takes long to boot
			s.host.is.System = power.StateUnknown
			for range 19 {
				s.Step(3 * time.Second)
				give()
			}
			s.wantAsked(s.host, "off on")
			s.Step(3 * time.Second)
			give()
			s.wantAsked(s.host, "off on on")
		}
		s.Step(time.Minute)
		give()
		if s.control().Status.HostOff != nil {
			t.Errorf("%s: not forgotten", policy)
		}
	}
}

// TestGiveBackAnother: another machine is not switched on, nor one whose volumes are being
// taken again.
func TestGiveBackAnother(t *testing.T) {
	s := newKit(t, poweredByHost, func(p *moorv1alpha1.PowerControlSpec) { p.PowerOn = moorv1alpha1.PowerOnReleased })
	s.run(45)
	if _, err := s.k.Release(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	s.host.is.Is.SerialNumber = "X"
	if err := s.step(); !errors.Is(err, power.ErrOtherMachine) {
		t.Errorf("another machine answers: %v", err)
	}
	s.host.is.Is.SerialNumber = "H"
	s.run(16)
	s.wantAsked(s.host, "off off")
}

// TestDone: what was asked for a claim that is free is not done any more, nor what is not asked
// again; what is asked for another claim is.
func TestDone(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(s *kit)
		want string
	}{
		"done":                             {func(s *kit) { s.k.Done("a", s.q.Claim) }, ""},
		"another is done":                  {func(s *kit) { s.k.Done("a", "other") }, "off"},
		"of a host that was not asked for": {func(s *kit) { s.k.Done("b", s.q.Claim) }, "off"},
		"forgotten":                        {func(s *kit) { s.k.Forget("a") }, ""},
		"another is forgotten":             {func(s *kit) { s.k.Forget("b") }, "off"},
		"not asked again":                  {func(s *kit) { s.Step(asksNow + time.Second) }, ""},
		"asked a moment ago":               {func(s *kit) { s.Step(asksNow) }, "off"},
	} {
		s := newKit(t, poweredByHost)
		s.ask()
		s.Step(DefaultAfter)
		s.ask()
		c.end(s)
		if err := s.step(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := strings.Join(s.host.asked, " "); got != c.want {
			t.Errorf("%s: asked for %q, want %q", name, got, c.want)
		}
	}
	var none *Keeper
	none.Done("a", "vol")
	none.Forget("a")
	if p, err := none.Ask(t.Context(), Question{}); p != nil || err != nil {
		t.Errorf("no keeper knows %+v, %v", p, err)
	}
	if words, err := none.Release(t.Context(), "a"); words != "" || err != nil {
		t.Errorf("no keeper says %q, %v", words, err)
	}
}

// TestNoPowerControl: nothing is asked, read or told of a host without one.
func TestNoPowerControl(t *testing.T) {
	s := newKit(t)
	s.Host.Remove(s.control())
	if p := s.run(60); p != nil || len(s.configs) > 0 {
		t.Errorf("known: %+v, connected %d times", p, len(s.configs))
	}
	if words, err := s.k.Release(t.Context(), "a"); words != "" || err != nil {
		t.Errorf("told %q, %v", words, err)
	}
	if s.Writes() > 0 {
		t.Error("written")
	}
}
