package metered

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/provisionertest"
)

func newRecorder(t *testing.T, reg prometheus.Registerer, c clock.PassiveClock) *Recorder {
	t.Helper()
	r, err := New(reg, c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestKeepsTheContract(t *testing.T) {
	open := func(t *testing.T) (*provisionertest.Fake, provisioner.Platform) {
		f := provisionertest.NewFake()
		return f, newRecorder(t, prometheus.NewRegistry(), clock.RealClock{}).Platform("fake", f.Platform())
	}
	provisionertest.TestVolumes(t, func(t *testing.T) provisioner.Volumes {
		_, p := open(t)
		return p.Volumes
	})
	provisionertest.TestAttachments(t, func(t *testing.T) (provisioner.Volumes, provisioner.Attachments) {
		_, p := open(t)
		return p.Volumes, p.Attachments
	})
	provisionertest.TestHost(t, func(t *testing.T) provisionertest.HostUnderTest {
		_, p := open(t)
		return provisionertest.HostUnderTest{Host: p.Host, Prepare: func(_ *testing.T, name string) provisioner.OpenSpec {
			return provisioner.OpenSpec{VolumeID: name}
		}}
	})
	provisionertest.TestDPU(t, func(t *testing.T) provisionertest.DPUUnderTest {
		f, p := open(t)
		return provisionertest.DPUUnderTest{DPU: p.DPU, Prepare: func(_ *testing.T, name string) provisioner.ExposeSpec {
			f.AddDevice(name)
			return provisioner.ExposeSpec{Device: name, FunctionType: provisioner.PF}
		}}
	})
}

func TestNilInterfacesStayNil(t *testing.T) {
	p := newRecorder(t, prometheus.NewRegistry(), clock.RealClock{}).Platform("none", provisioner.Platform{})
	if p != (provisioner.Platform{}) {
		t.Fatalf("a platform without interfaces got some: %+v", p)
	}
}

func TestMeasures(t *testing.T) {
	reg, fc, f := prometheus.NewRegistry(), clocktesting.NewFakePassiveClock(time.Unix(0, 0)), provisionertest.NewFake()
	f.Hook = func(context.Context, provisionertest.Call) error {
		fc.SetTime(fc.Now().Add(3 * time.Second))
		return nil
	}
	// Two recorders on one registry share the histogram.
	newRecorder(t, reg, fc)
	p := newRecorder(t, reg, fc).Platform("fake", f.Platform())
	f.FailNext(provisionertest.FaceHost, "List", provisioner.ErrUnavailable, errors.New("boom"))
	for range 3 {
		_, _ = p.Host.List(t.Context())
	}
	want := map[string]string{"OK": "1 in 3s", "Unavailable": "1 in 3s", "Unknown": "1 in 3s"}
	if diff := cmp.Diff(want, observed(t, reg)); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
}

// rescanner is provisioner.Rescan, which cannot be embedded under that name: it is
// its method's.
type rescanner = provisioner.Rescan

// TestMeasuresEveryVerb calls every method of every interface of a platform whose
// methods all panic: what was measured has the names of the interface and the method.
func TestMeasuresEveryVerb(t *testing.T) {
	reg := prometheus.NewRegistry()
	p := reflect.ValueOf(newRecorder(t, reg, clock.RealClock{}).Platform("all", provisioner.Platform{
		Volumes:     struct{ provisioner.Volumes }{},
		Attachments: struct{ provisioner.Attachments }{},
		Host:        struct{ provisioner.Host }{},
		DPU:         struct{ provisioner.DPU }{},
		Copies:      struct{ provisioner.Copies }{},
		Snapshots:   struct{ provisioner.Snapshots }{},
		Groups:      struct{ provisioner.Groups }{},
		Blocks:      struct{ provisioner.Blocks }{},
		Inventory:   struct{ provisioner.Inventory }{},
		Room:        struct{ provisioner.Room }{},
		Expansion:   struct{ provisioner.Expansion }{},
		Change:      struct{ provisioner.Change }{},
		Health:      struct{ provisioner.Health }{},
		Rescan:      struct{ rescanner }{},
		Fencing:     struct{ provisioner.Fencing }{},
		Epochs:      struct{ provisioner.Epochs }{},
	}))
	var want []string
	for i := range p.NumField() {
		iface, name := p.Field(i), p.Type().Field(i).Name
		if iface.IsNil() {
			t.Fatalf("give the platform of this test the interface %s, too", name)
		}
		for j := range iface.NumMethod() {
			callThatPanics(t, iface.Method(j))
			want = append(want, name+"."+iface.Type().Method(j).Name)
		}
	}
	var got []string
	for _, s := range samples(t, reg) {
		got = append(got, s.labels["face"]+"."+s.labels["verb"])
	}
	if diff := cmp.Diff(want, got, cmpopts.SortSlices(strings.Compare)); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
}

func callThatPanics(t *testing.T, method reflect.Value) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s does not reach the platform", method.Type())
		}
	}()
	in := make([]reflect.Value, method.Type().NumIn())
	for i := range in {
		in[i] = reflect.Zero(method.Type().In(i))
	}
	method.Call(in)
}

func observed(t *testing.T, reg *prometheus.Registry) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, s := range samples(t, reg) {
		code := s.labels["code"]
		want := map[string]string{"platform": "fake", "face": "Host", "verb": "List", "code": code}
		if diff := cmp.Diff(want, s.labels); diff != "" {
			t.Fatalf("labels (-want +got):\n%s", diff)
		}
		out[code] = fmt.Sprintf("%d in %gs", s.calls, s.seconds)
		if s.last != 60 {
			t.Fatalf("the last bucket ends at %g s", s.last)
		}
	}
	return out
}

// sample is what a histogram holds for one set of labels.
type sample struct {
	labels map[string]string
	calls  uint64
	// seconds of all calls, and the upper bound of the last bucket.
	seconds, last float64
}

func samples(t *testing.T, reg *prometheus.Registry) []sample {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out []sample
	for _, family := range families {
		for _, m := range family.GetMetric() {
			h, labels := m.GetHistogram(), map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			last := h.GetBucket()[len(h.GetBucket())-1].GetUpperBound()
			out = append(out, sample{labels: labels, calls: h.GetSampleCount(), seconds: h.GetSampleSum(), last: last})
		}
	}
	return out
}

func TestCode(t *testing.T) {
	for _, c := range codes {
		if got := code(fmt.Errorf("do it: %w", c.err)); got != c.code {
			t.Errorf("code of %v: got %q, want %q", c.err, got, c.code)
		}
	}
}
