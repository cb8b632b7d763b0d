package powerproof

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/power"
	"github.com/moor-storage/moor/pkg/power/redfish"
)

// TestAnotherMachine: that the host was switched off proves nothing where the DPU is to be reset, though
// both were asked for by the same claim, and by an installer's mistake have one serial number.
func TestAnotherMachine(t *testing.T) {
	for _, serial := range []string{"D", "H"} {
		s := newKit(t, func(p *moorv1alpha1.PowerControlSpec) { p.DPU.SerialNumber = serial })
		s.dpu.is.Is.SerialNumber = serial
		s.q.MayReset = false
		s.run(40)
		s.wantAsked(s.host, "off")
		s.q.MayReset = true
		if p := s.ask(); p.Asked || !strings.Contains(p.Words(), "the BMC of the DPU is asked") {
			t.Errorf("by the power of the host %+v is known", p)
		}
		s.wantProof(s.run(20), true, "the DPU with serial number "+serial+" was reset")
	}
}

// TestAnotherSpec: what was read of the machine that the PowerControl named before proves nothing of the one
// that it names now.
func TestAnotherSpec(t *testing.T) {
	s := newKit(t, poweredByHost)
	s.wantProof(s.run(50), true, "")
	c := s.control()
	c.Generation++
	if err := s.Host.Direct.Update(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if p := s.ask(); p.Asked {
		t.Errorf("by what was read before: %+v", p)
	}
	s.wantProof(s.run(6), false, "are needed")
	s.wantAsked(s.host, "off off")
}

// TestQuestionsEnd: what is not asked again for 45 s is begun anew, and touches nothing after 12 s.
func TestQuestionsEnd(t *testing.T) {
	for after, known := range map[time.Duration]bool{45 * time.Second: true, 45*time.Second + 1: false} {
		s := newKit(t, poweredByHost)
		s.ask()
		s.Step(after)
		if p := s.ask(); (p != nil) != known {
			t.Errorf("%s later: %+v", after, p)
		}
	}
	for after, want := range map[time.Duration]string{12 * time.Second: "off", 12*time.Second + 1: ""} {
		s := newKit(t, poweredByHost)
		s.q.Alone = true
		s.ask()
		s.Step(after)
		if err := s.step(); err != nil {
			t.Fatal(err)
		}
		s.wantAsked(s.host, want)
	}
}

// TestReadingEnds: a machine is read for as long as that is asked for, and no longer.
func TestReadingEnds(t *testing.T) {
	for after, reads := range map[time.Duration]int{45 * time.Second: 2, 45*time.Second + 1: 1} {
		s := newKit(t, poweredByHost)
		s.q.Alone = true
		s.ask()
		for _, wait := range []time.Duration{0, after} {
			s.Step(wait)
			if err := s.step(); err != nil {
				t.Fatal(err)
			}
		}
		if got := len(s.configs); got != reads {
			t.Errorf("%s after the question the BMC was asked %d times in all, want %d", after, got, reads)
		}
	}
}

// TestReadingsAreBounded: of a machine that never proves anything no more than a hundred readings are kept.
func TestReadingsAreBounded(t *testing.T) {
	s := newKit(t, poweredByHost)
	s.host.is.System, s.host.is.Chassis, s.q.Alone = power.StateOff, power.StateOn, true
	p := s.run(310)
	s.wantProof(p, false, "its chassis to be On")
	if len(p.Readings) != 100 {
		t.Errorf("%d readings are kept", len(p.Readings))
	}
}

// TestWakes: who asks has a step done at once, and what was read starts a pass of who has asked.
func TestWakes(t *testing.T) {
	s := newKit(t, poweredByHost, func(p *moorv1alpha1.PowerControlSpec) { p.PowerOn = moorv1alpha1.PowerOnReleased })
	s.q.Alone = true
	s.ask()
	woken := func(what string) {
		t.Helper()
		select {
		case e := <-s.k.wakes:
			if e.Object.GetName() != "a" || e.Object.GetNamespace() != kubetest.HostNamespace {
				t.Errorf("%s has %s woken", what, client.ObjectKeyFromObject(e.Object))
			}
		default:
			t.Errorf("%s wakes nothing", what)
		}
	}
	woken("a question")
	if err := s.step(); err != nil {
		t.Fatal(err)
	}
	if words, err := s.k.Release(t.Context(), "a"); err != nil || !strings.Contains(words, "is being switched on again") {
		t.Errorf("told %q, %v", words, err)
	}
	woken("a release")

	var none *Keeper
	for _, k := range []*Keeper{s.k, none} {
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
		if err := k.Source().Start(t.Context(), queue); err != nil {
			t.Fatal(err)
		}
		if k == nil {
			continue
		}
		if got, _ := queue.Get(); got.Name != "a" {
			t.Errorf("what was read wakes %s", got)
		}
	}
}

// TestUnreadable: what the API server does not answer is an error, and no word that there is nothing to ask.
func TestUnreadable(t *testing.T) {
	s := newKit(t, poweredByHost)
	lost := errors.New("connection lost")
	s.k.o.Host.Client = interceptor.NewClient(s.Host.Direct, interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return lost
		},
	})
	if p, err := s.k.Ask(t.Context(), s.q); !errors.Is(err, lost) {
		t.Errorf("ask: %+v, %v", p, err)
	}
	if words, err := s.k.Release(t.Context(), "a"); !errors.Is(err, lost) {
		t.Errorf("release: %q, %v", words, err)
	}
	if err := s.step(); !errors.Is(err, lost) {
		t.Errorf("step: %v", err)
	}
}

// TestByRedfish: without a word of how, machines are reached by Redfish.
func TestByRedfish(t *testing.T) {
	m, err := New(Options{}).o.Connect(redfish.Config{Endpoint: "https://192.0.2.1", Want: power.Identity{SerialNumber: "H"}})
	if m == nil || err != nil {
		t.Errorf("%v, %v", m, err)
	}
}
