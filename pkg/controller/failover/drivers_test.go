package failover

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/internal/podvolume"
)

var bothDrivers = []string{kubetest.Driver, kubetest.SecondDriver}

// bySecond makes the PersistentVolume of "vol", and its VolumeAttachment to host a, the
// second driver's.
func (s *fixture) bySecond() *storagev1.VolumeAttachment {
	s.t.Helper()
	kubetest.Change(s.Host, kubetest.PV("pv-vol", "vol", "vol"), func(pv *corev1.PersistentVolume) { pv.Spec.CSI.Driver = kubetest.SecondDriver })
	va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: podvolume.AttachmentName("vol", kubetest.SecondDriver, "a")}}
	s.Host.Add(va)
	s.core("a", func(n *corev1.Node) {
		n.Status.VolumesAttached = []corev1.AttachedVolume{{Name: "kubernetes.io/csi/" + kubetest.SecondDriver + "^vol"}}
	})
	return va
}

// TestReleaseOfTheSecondDriver: the pods of each driver that is named are let go, and their
// volumes detached; those of another driver stay.
func TestReleaseOfTheSecondDriver(t *testing.T) {
	for name, tc := range map[string]struct {
		drivers []string
		want    bool // it is released
	}{
		"both are named":      {bothDrivers, true},
		"the second alone":    {bothDrivers[1:], true},
		"the first alone":     {bothDrivers[:1], false},
		"the order is free":   {[]string{kubetest.SecondDriver, kubetest.Driver}, true},
		"one is named twice":  {[]string{kubetest.SecondDriver, kubetest.SecondDriver}, true},
		"another beside ours": {[]string{"other", kubetest.Driver}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			va := s.bySecond()
			s.change(func(o *Options) { o.Drivers = tc.drivers })
			s.seenDead("a")
			s.mustPass()
			s.retire()
			s.mustPass()
			s.wantPhase(freed)
			if _, attached := kubetest.Read(s.Host, va); attached == tc.want || s.hasPod("app") == tc.want {
				t.Errorf("attached %v, pod %v; want released: %v", attached, s.hasPod("app"), tc.want)
			}
		})
	}
}

// TestEvictionOfTheSecondDriver: of a living host whose DPU has taken a volume away the pods
// of both drivers go.
func TestEvictionOfTheSecondDriver(t *testing.T) {
	s := newFixture(t)
	s.bySecond()
	s.addVolume("two", "a")
	s.addPod("first", "a", "two")
	s.change(func(o *Options) { o.Drivers = bothDrivers })
	pods, err := s.f.releaser.pods.on(t.Context(), "a", nil)
	if err != nil || len(pods) != 2 {
		t.Fatalf("%d pods, %v", len(pods), err)
	}
	users, err := s.f.paths.users(t.Context(), "a")
	if err != nil || len(users["vol"]) != 1 || len(users["two"]) != 1 {
		t.Errorf("users %v, %v", users, err)
	}
}

// TestOutOfServiceWithTheSecondDriver: the volumes of a driver that is named are fenced, and
// so hinder no taint; those of another do.
func TestOutOfServiceWithTheSecondDriver(t *testing.T) {
	for name, tc := range map[string]struct {
		drivers []string
		want    bool
	}{"named": {bothDrivers, true}, "not named": {bothDrivers[:1], false}} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			s.change(func(o *Options) { o.Drivers = tc.drivers })
			s.core("a", func(n *corev1.Node) {
				n.Status.VolumesAttached = []corev1.AttachedVolume{
					{Name: "kubernetes.io/csi/" + kubetest.Driver + "^vol"}, {Name: "kubernetes.io/csi/" + kubetest.SecondDriver + "^two"},
				}
			})
			n, _ := kubetest.Read(s.Host, kubetest.Node("a", nil))
			if words := s.f.releaser.others(&pass{core: n}); (words == "") != tc.want {
				t.Errorf("%q, want none: %v", words, tc.want)
			}
		})
	}
}
