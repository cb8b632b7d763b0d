package powerproof

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/power"
	"github.com/moor-storage/moor/pkg/power/redfish"
	"github.com/moor-storage/moor/pkg/writer"
)

// machineOf is a machine of these tests, which does what it is asked unless a test changes
// that.
type machineOf struct {
	kit *kit
	is  power.Reading
	// asked are its requests, in order.
	asked []string
	// fails is what all calls answer, unreadable what readings do, and refuses what requests do.
	fails, unreadable, refuses error
	// idle: it accepts and does nothing.
	idle bool
}

func (m *machineOf) Read(context.Context) (power.Reading, error) {
	m.is.At = m.kit.Clock.Now()
	return m.is, errors.Join(m.fails, m.unreadable)
}

func (m *machineOf) do(what string, change func()) error {
	if err := errors.Join(m.fails, m.refuses); err != nil {
		return err
	}
	m.asked = append(m.asked, what)
	m.kit.wasWritten(what)
	if !m.idle {
		change()
	}
	return nil
}

func (m *machineOf) PowerOff(context.Context) error {
	return m.do("off", func() { m.is.System = power.StateOff })
}

func (m *machineOf) PowerOn(context.Context) error {
	return m.do("on", func() { m.is.System = power.StateOn })
}

func (m *machineOf) Restart(context.Context) error {
	return m.do("reset", func() { m.is.LastReset = m.is.LastReset.Add(time.Hour) })
}

// kit is host "a" with its PowerControl, its BMCs, and the keeper that asks them.
type kit struct {
	*kubetest.Clusters
	t         *testing.T
	k         *Keeper
	host, dpu *machineOf
	configs   []redfish.Config
	// heard is when the DPU was heard last.
	heard time.Time
	// q is what is asked.
	q Question
	// connectFails is what connecting answers, and connected is called when it is done; nil: neither.
	connectFails error
	connected    func()
}

// request is for the one host.
var request = ctrl.Request{NamespacedName: client.ObjectKey{Namespace: kubetest.HostNamespace, Name: "a"}}

func newKit(t *testing.T, change ...func(*moorv1alpha1.PowerControlSpec)) *kit {
	s := &kit{Clusters: kubetest.New(t), t: t, q: Question{Host: "a", DPU: "dpu-a", Claim: "vol", Epoch: 4, MayOff: true, MayReset: true}}
	s.host = &machineOf{kit: s, is: power.Reading{Is: power.Identity{SerialNumber: "H"}, System: power.StateOn}}
	s.dpu = &machineOf{kit: s, is: power.Reading{Is: power.Identity{SerialNumber: "D"}, System: power.StateOn, LastReset: time.Unix(1e6, 0), Stage: power.StageRunning}}
	c := &moorv1alpha1.PowerControl{ObjectMeta: metav1.ObjectMeta{Namespace: kubetest.HostNamespace, Name: "a", Generation: 1}}
	c.Spec.Host = &moorv1alpha1.BMC{Address: "https://host", SerialNumber: "H", SecretName: "bmc"}
	c.Spec.DPU = &moorv1alpha1.BMC{Address: "https://dpu", SerialNumber: "D", SecretName: "bmc"}
	for _, f := range change {
		f(&c.Spec)
	}
	s.Host.Add(c, secret("bmc", map[string]string{"username": "root", "password": "s3cret"}))
	s.restart()
	return s
}

func secret(name string, data map[string]string) *corev1.Secret {
	out := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: kubetest.HostNamespace, Name: name}, Data: map[string][]byte{}}
	for k, v := range data {
		out.Data[k] = []byte(v)
	}
	return out
}

// device adds the DPUDevice "card".
func (s *kit) device(spec, status map[string]any) {
	s.t.Helper()
	device := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	if status != nil {
		device.Object["status"] = status
	}
	device.SetGroupVersionKind(dpuDevice)
	device.SetNamespace(kubetest.HostNamespace)
	device.SetName("card")
	if err := s.Host.Direct.Create(s.t.Context(), device); err != nil {
		s.t.Fatal(err)
	}
}

// byDevice has the BMC of the DPU known by DPF's object.
func byDevice(s *moorv1alpha1.PowerControlSpec) {
	s.DPU, s.DPUDevice = nil, &moorv1alpha1.DPUDeviceBMC{Name: "card", Username: "root"}
}

func poweredByHost(s *moorv1alpha1.PowerControlSpec) { s.DPUPower = moorv1alpha1.DPUPowerHost }

// restart makes a keeper that remembers nothing.
func (s *kit) restart() {
	s.k = New(Options{
		Host: s.Host.Cluster, Namespace: kubetest.HostNamespace, Clock: s.Clock, After: DefaultAfter, Drain: DefaultDrain,
		Silent: func(string) time.Time { return s.heard },
		Connect: func(c redfish.Config) (power.Machine, error) {
			s.configs = append(s.configs, c)
			if s.connected != nil {
				s.connected()
			}
			if s.connectFails != nil {
				return nil, s.connectFails
			}
			if c.Endpoint == "https://host" {
				return s.host, nil
			}
			return s.dpu, nil
		},
	})
}

// wasWritten holds the keeper to write before it asks.
func (s *kit) wasWritten(what string) {
	s.t.Helper()
	switch c := s.control(); {
	case what == "off" && c.Status.HostOff == nil, what == "reset" && (c.Status.DPUReset == nil || !c.Status.DPUReset.Time.Equal(s.Clock.Now().Truncate(time.Second))):
		s.t.Errorf("%s is asked for, and not on record: %+v", what, c.Status)
	}
}

func (s *kit) control() *moorv1alpha1.PowerControl {
	s.t.Helper()
	c, found := kubetest.Read(s.Host, &moorv1alpha1.PowerControl{ObjectMeta: metav1.ObjectMeta{Namespace: kubetest.HostNamespace, Name: "a"}})
	if !found {
		s.t.Fatal("no PowerControl")
	}
	return c
}

func (s *kit) ask() *writer.Power {
	s.t.Helper()
	p, err := s.k.Ask(s.t.Context(), s.q)
	if err != nil {
		s.t.Fatal(err)
	}
	return p
}

func (s *kit) step() error {
	_, err := s.k.Reconcile(s.t.Context(), request)
	return err
}

// meanwhile changes the question while a BMC is asked.
func (s *kit) meanwhile(change func()) {
	s.connected = func() {
		s.connected = nil
		change()
		s.ask()
	}
}

// asking lets a time pass in which it is asked, and asks no BMC.
func (s *kit) asking(d time.Duration) {
	s.t.Helper()
	for end := s.Clock.Now().Add(d); s.Clock.Now().Before(end); {
		s.ask()
		s.Step(min(10*time.Second, end.Sub(s.Clock.Now())))
	}
	s.ask()
}

// run lets seconds pass in which it is asked, and asks its BMCs, and returns what is known
// then.
func (s *kit) run(seconds int) *writer.Power {
	s.t.Helper()
	for range seconds {
		s.Step(time.Second)
		s.ask()
		s.Step(time.Millisecond)
		if err := s.step(); err != nil {
			s.t.Fatal(err)
		}
	}
	return s.ask()
}

// proven is what the rule makes of it.
func (s *kit) wantProof(p *writer.Power, proven bool, words string) {
	s.t.Helper()
	if p == nil {
		s.t.Fatal("nothing is known")
	}
	got := ""
	if p.Asked {
		got, _ = writer.JudgePower(*p)
	}
	if (got != "") != proven || !strings.Contains(got+p.Words(), words) {
		s.t.Fatalf("proven %q, missing %q, want %v and %q", got, p.Words(), proven, words)
	}
}

func (s *kit) wantAsked(m *machineOf, want string) {
	s.t.Helper()
	if got := strings.Join(m.asked, " "); got != want {
		s.t.Errorf("machine %s was asked for %q, want %q", m.is.Is.SerialNumber, got, want)
	}
}
