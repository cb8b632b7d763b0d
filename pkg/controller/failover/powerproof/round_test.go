package powerproof

import (
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/power"
)

// TestTrouble: what fails for one step is told, and what was read before counts on: the machine is not asked
// anew, and the proof comes as soon.
func TestTrouble(t *testing.T) {
	for name, c := range map[string]struct {
		fail, mend func(s *kit)
		words      string
	}{
		"no Secret": {
			func(s *kit) { s.Host.Remove(secret("bmc", nil)) },
			func(s *kit) { s.Host.Add(secret("bmc", map[string]string{"username": "root", "password": "s3cret"})) },
			"Secret bmc of a BMC is not in namespace",
		},
		"no connection": {
			func(s *kit) { s.connectFails = errors.New("no such address") },
			func(s *kit) { s.connectFails = nil },
			"no such address",
		},
		"no answer": {
			func(s *kit) { s.host.fails = power.ErrUnreachable },
			func(s *kit) { s.host.fails = nil },
			"does not answer",
		},
	} {
		s := newKit(t, poweredByHost)
		s.run(35)
		c.fail(s)
		s.wantProof(s.run(3), false, c.words)
		c.mend(s)
		s.wantProof(s.run(8), true, "")
		s.wantAsked(s.host, "off")
		if p := s.ask(); p.Trouble != "" {
			t.Errorf("%s: %q is told of what is over", name, p.Trouble)
		}
	}
}

// TestPace: a BMC is asked every three seconds at most, however often that is asked for, and again after them.
func TestPace(t *testing.T) {
	s := newKit(t, poweredByHost)
	s.q.Alone = true
	s.ask()
	for _, c := range []struct {
		wait, next time.Duration
		asked      int
	}{
		{0, 3 * time.Second, 1},
		{3*time.Second - 1, 1, 1},
		{1, 3 * time.Second, 2},
		{time.Second, 2 * time.Second, 2},
	} {
		s.Step(c.wait)
		next, err := s.k.Reconcile(t.Context(), request)
		if err != nil || next.RequeueAfter != c.next || len(s.configs) != c.asked {
			t.Errorf("%s later: asked %d times in all, and again in %s, %v; want %d and %s", c.wait, len(s.configs), next.RequeueAfter, err, c.asked, c.next)
		}
	}
}

// TestNothingToAsk: before other proofs were waited for, and where no BMC may be asked, none is, and nothing
// is repeated; the first step is not held up by that.
func TestNothingToAsk(t *testing.T) {
	s := newKit(t, poweredByHost)
	idle := func(why string) {
		t.Helper()
		if next, err := s.k.Reconcile(t.Context(), request); err != nil || next.RequeueAfter != 0 || len(s.configs) > 0 {
			t.Errorf("%s: %+v, %v, connected %d times", why, next, err, len(s.configs))
		}
	}
	idle("nothing was asked")
	s.ask()
	s.Step(14 * time.Second)
	s.ask()
	idle("other proofs are waited for")
	s.q.MayOff, s.q.MayReset = false, false
	s.Step(time.Second)
	if p := s.ask(); p == nil || !strings.Contains(p.Words(), "neither is touched") {
		t.Errorf("known: %+v", p)
	}
	idle("neither may be touched")
	s.q.MayOff = true
	s.Step(3 * time.Second)
	s.ask()
	if err := s.step(); err != nil {
		t.Fatal(err)
	}
	s.wantAsked(s.host, "off")
}

// TestActsAtOnce: the first step comes with the question, however shortly before one was in vain.
func TestActsAtOnce(t *testing.T) {
	s := newKit(t, poweredByHost)
	s.ask()
	s.Step(14 * time.Second)
	s.ask()
	if err := s.step(); err != nil {
		t.Fatal(err)
	}
	s.Step(time.Second)
	s.ask()
	if err := s.step(); err != nil {
		t.Fatal(err)
	}
	s.wantAsked(s.host, "off")
}

// TestOtherCard: what was read of a card is not noted of another that is asked for meanwhile.
func TestOtherCard(t *testing.T) {
	s := newKit(t)
	s.q.Alone = true
	s.ask()
	s.meanwhile(func() { s.q.DPU = "dpu-b" })
	if err := s.step(); err != nil {
		t.Fatal(err)
	}
	s.wantAsked(s.dpu, "")
	if p := s.ask(); p.Asked {
		t.Errorf("known of the other card: %+v", p)
	}
}

// TestForgottenMeanwhile: nothing is done to a machine of which nothing is wanted any more, nor kept of it.
func TestForgottenMeanwhile(t *testing.T) {
	s := newKit(t, poweredByHost)
	s.q.Alone = true
	s.ask()
	s.connected = func() { s.k.Forget("a") }
	if err := s.step(); err != nil {
		t.Fatal(err)
	}
	s.wantAsked(s.host, "")
	if p := s.ask(); p.Asked || p.Trouble != "the BMC of the host is asked" {
		t.Errorf("known: %+v", p)
	}
}

// TestKeepsOff: a host is switched on neither by a keeper that does not know it to be released, nor once it was
// given back and a person has switched it off.
func TestKeepsOff(t *testing.T) {
	s := newKit(t, poweredByHost, func(p *moorv1alpha1.PowerControlSpec) { p.PowerOn = moorv1alpha1.PowerOnReleased })
	s.run(45)
	s.restart()
	before := len(s.configs)
	if next, err := s.k.Reconcile(t.Context(), request); err != nil || next.RequeueAfter != 0 || len(s.configs) != before {
		t.Errorf("not released: %+v, %v, connected %d times", next, err, len(s.configs)-before)
	}
	if _, err := s.k.Release(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // it is asked to come on, and seen on
		s.Step(time.Minute)
		if err := s.step(); err != nil {
			t.Fatal(err)
		}
	}
	s.wantAsked(s.host, "off on")
	s.host.is.System = power.StateOff
	s.Step(time.Hour)
	if err := s.step(); err != nil {
		t.Fatal(err)
	}
	s.wantAsked(s.host, "off on")
}

// TestRoundStays: a machine that is to be asked anew, and is not, has what was read of it still.
func TestRoundStays(t *testing.T) {
	for name, now := range map[string]func(s *kit){
		"another machine answers":            func(s *kit) { s.host.is.Is.SerialNumber = "X" },
		"the request is refused":             func(s *kit) { s.host.refuses = power.ErrRefused },
		"the host was found alive meanwhile": func(s *kit) { s.meanwhile(func() { s.q.MayOff = false }) },
		"the DPU was heard meanwhile":        func(s *kit) { s.meanwhile(func() { s.q.MayReset = false }) },
	} {
		s := newKit(t, poweredByHost)
		s.run(35)
		s.host.is.System = power.StateOn
		s.asking(time.Minute)
		now(s)
		if err := s.step(); err != nil {
			t.Fatal(err)
		}
		s.q.MayOff = true
		if p := s.ask(); !p.Asked || p.Readings[len(p.Readings)-1].System != power.StateOn {
			t.Errorf("%s: known is %+v", name, p)
		}
		s.wantAsked(s.host, "off")
	}
}

// TestAnotherCardOnRecord: a DPUDevice that stands for another card begins anew, though the PowerControl is
// the same.
func TestAnotherCardOnRecord(t *testing.T) {
	s := newKit(t, byDevice)
	s.device(map[string]any{"serialNumber": "D", "bmcIp": "192.0.2.1"}, nil)
	s.Host.Add(secret(dpfCA, map[string]string{"ca.crt": "ca"}), secret(dpfClient, nil), secret(dpfPassword, map[string]string{"password": "shared"}))
	s.wantProof(s.run(33), true, "serial number D was reset")
	device := &unstructured.Unstructured{}
	device.SetGroupVersionKind(dpuDevice)
	if err := s.Host.Direct.Get(t.Context(), client.ObjectKey{Namespace: kubetest.HostNamespace, Name: "card"}, device); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(unstructured.SetNestedField(device.Object, "E", "spec", "serialNumber"), s.Host.Direct.Update(t.Context(), device)); err != nil {
		t.Fatal(err)
	}
	s.dpu.is.Is.SerialNumber = "E"
	s.run(3)
	if p := s.ask(); p.Asked && p.Want.SerialNumber != "E" {
		t.Errorf("known of the card of before: %+v", p)
	}
	s.wantProof(s.run(60), true, "serial number E was reset")
	s.wantAsked(s.dpu, "reset reset")
}

// TestAgain: a request of which nothing came is repeated after a minute, a reset that was accepted after two; one
// that came before the newest claim was taken back after a minute.
func TestAgain(t *testing.T) {
	for name, c := range map[string]struct {
		byHost, newer bool
		after         time.Duration
		want          string
	}{
		"the host, too soon":                  {true, false, time.Minute - 1, "off"},
		"the host":                            {true, false, time.Minute, "off off"},
		"the DPU, too soon":                   {false, false, 2*time.Minute - 1, "reset"},
		"the DPU":                             {false, false, 2 * time.Minute, "reset reset"},
		"the DPU, for another claim, so soon": {false, true, time.Minute - 1, "reset"},
		"the DPU, for another claim":          {false, true, time.Minute, "reset reset"},
	} {
		s := newKit(t)
		m := s.dpu
		if c.byHost {
			s = newKit(t, poweredByHost)
			m = s.host
		}
		m.idle, s.q.Alone = true, true
		s.ask()
		s.Step(time.Millisecond)
		if err := s.step(); err != nil {
			t.Fatal(err)
		}
		first := s.Clock.Now()
		s.Step(time.Second)
		if c.newer {
			s.q.Claim = "other"
		}
		s.asking(c.after - s.Clock.Since(first))
		if err := s.step(); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(m.asked, " "); got != c.want {
			t.Errorf("%s: after %s it was asked for %q, want %q", name, c.after, got, c.want)
		}
	}
}

// TestResetOnRecord: a keeper that remembers nothing resets a DPU a minute after it was reset, and no sooner.
func TestResetOnRecord(t *testing.T) {
	for after, want := range map[time.Duration]string{time.Minute - 1: "reset", time.Minute: "reset reset"} {
		s := newKit(t)
		s.q.Alone = true
		for _, wait := range []time.Duration{0, after} {
			s.restart()
			s.Step(wait)
			s.ask()
			if err := s.step(); err != nil {
				t.Fatal(err)
			}
		}
		if got := strings.Join(s.dpu.asked, " "); got != want {
			t.Errorf("%s after a reset it was asked for %q, want %q", after, got, want)
		}
	}
}

// TestOnRecordFirst: nothing is done to a machine that could not be put on record before, and the record has the
// first time at which a host was switched off.
func TestOnRecordFirst(t *testing.T) {
	s := newKit(t, poweredByHost)
	s.q.Alone, s.host.idle = true, true
	s.ask()
	s.LoseWrite(1, false)
	if err := s.step(); err != nil {
		t.Fatal(err)
	}
	s.wantAsked(s.host, "")
	if p := s.ask(); !strings.Contains(p.Words(), kubetest.ErrLost.Error()) {
		t.Errorf("told %q", p.Words())
	}
	s.run(3)
	s.wantAsked(s.host, "off")
	first := *s.control().Status.HostOff
	s.run(62)
	s.wantAsked(s.host, "off off")
	if is := s.control().Status.HostOff; !is.Equal(&first) {
		t.Errorf("on record is %s, and it was switched off first at %s", is, first)
	}
}

// TestHostAfterDPU: that the DPU was reset a moment ago does not keep the host from being switched off.
func TestHostAfterDPU(t *testing.T) {
	s := newKit(t)
	s.q.Alone = true
	s.run(1)
	s.wantAsked(s.dpu, "reset")
	s.q.MayReset = false
	s.run(3)
	s.wantAsked(s.host, "off")
}

// TestGiveBackFails: what keeps a host from being switched on again is an error, by which it is tried again.
func TestGiveBackFails(t *testing.T) {
	lost := errors.New("no such address")
	for name, c := range map[string]struct {
		fail func(s *kit)
		want string
	}{
		"no Secret":     {func(s *kit) { s.Host.Remove(secret("bmc", nil)) }, "Secret bmc of a BMC is not in namespace"},
		"no connection": {func(s *kit) { s.connectFails = lost }, lost.Error()},
		"no answer":     {func(s *kit) { s.host.unreadable = power.ErrUnreachable }, "does not answer"},
		"refused":       {func(s *kit) { s.host.refuses = power.ErrRefused }, "refuses the request"},
		"not forgotten": {func(s *kit) { s.host.is.System = power.StateOn; s.LoseWrite(1, false) }, kubetest.ErrLost.Error()},
	} {
		s := newKit(t, poweredByHost, func(p *moorv1alpha1.PowerControlSpec) { p.PowerOn = moorv1alpha1.PowerOnReleased })
		s.run(45)
		if _, err := s.k.Release(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		c.fail(s)
		if err := s.step(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestTold: what is told has the time of what was done.
func TestTold(t *testing.T) {
	s := newKit(t)
	s.run(17)
	s.restart()
	s.wantProof(s.run(20), false, "the DPU was reset at 2026-01-02T03:04:2")

	s = newKit(t, poweredByHost)
	s.run(17)
	if words, err := s.k.Release(t.Context(), "a"); err != nil || !strings.Contains(words, "switched off by its BMC at 2026-01-02T03:04:2") {
		t.Errorf("told %q, %v", words, err)
	}
}
