package metered

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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

func TestNilFacesStayNil(t *testing.T) {
	p := newRecorder(t, prometheus.NewRegistry(), clock.RealClock{}).Platform("none", provisioner.Platform{})
	if p != (provisioner.Platform{}) {
		t.Fatalf("a platform without faces got some: %+v", p)
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

func observed(t *testing.T, reg *prometheus.Registry) map[string]string {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, fam := range families {
		for _, m := range fam.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			want := map[string]string{"platform": "fake", "face": "Host", "verb": "List", "code": labels["code"]}
			if diff := cmp.Diff(want, labels); diff != "" {
				t.Fatalf("labels (-want +got):\n%s", diff)
			}
			h := m.GetHistogram()
			out[labels["code"]] = fmt.Sprintf("%d in %gs", h.GetSampleCount(), h.GetSampleSum())
			if last := h.GetBucket()[len(h.GetBucket())-1].GetUpperBound(); last != 60 {
				t.Fatalf("the last bucket ends at %g s", last)
			}
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
