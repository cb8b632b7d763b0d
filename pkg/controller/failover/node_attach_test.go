package failover

import (
	"slices"
	"testing"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/internal/podvolume"
	hostattachment "github.com/moor-storage/moor/pkg/controller/hostcluster/attachment"
	"github.com/moor-storage/moor/pkg/controller/hostcluster/hostclustertest"
)

// byNode makes host a the requester of its attachment: no VolumeAttachment of
// Kubernetes stands behind it.
func (s *fixture) byNode() {
	s.t.Helper()
	kubetest.Change(s.Host, kubetest.DPUVolumeAttachment("vol", "a"), func(a *storagev1alpha1.DPUVolumeAttachment) {
		a.Spec.Requester = storagev1alpha1.RequesterNode
	})
}

// grantPass is one pass of hostcluster/attachment over the attachment, by a new instance.
func (s *fixture) grantPass() {
	s.t.Helper()
	r := &hostattachment.Reconciler{
		Clusters: hostclustertest.Clusters(s.Clusters), Clock: s.Clock,
		Users: &hostattachment.Users{Users: podvolume.Users{Host: s.Host.Cluster, Drivers: []string{kubetest.Driver}}}, NodesAsk: true,
	}
	s.MustReconcile(r, "a-vol")
}

// asked is the attachment; wanted is false once it is deleted.
func (s *fixture) asked() (wanted, there bool) {
	s.t.Helper()
	a, found := kubetest.Read(s.Host, kubetest.DPUVolumeAttachment("vol", "a"))
	return found && a.DeletionTimestamp.IsZero(), found
}

// TestNodeAttachedHostDead: nothing is unstaged on a dead host. What it has asked
// for goes once the host is out of service and its pods are gone, not before.
func TestNodeAttachedHostDead(t *testing.T) {
	s := newFixture(t)
	s.byNode()
	s.grantPass()
	s.seenDead("a")
	s.mustPass()
	s.grantPass()
	s.wantPhase(fencing)
	if wanted, _ := s.asked(); !wanted {
		t.Error("deleted before there is a receipt")
	}
	s.retire()
	s.mustPass()
	s.wantPhase(freed)
	if !s.tainted("a") || s.hasPod("app") {
		t.Error("not released")
	}
	if m, found := kubetest.Read(s.DPU, &storagev1alpha1.VolumeAttachment{ObjectMeta: kubetest.DPUObject("a-vol")}); !found || m.DeletionTimestamp.IsZero() {
		t.Error("the attachment there is not held until its owner goes")
	}
	s.restart()
	s.grantPass()
	if wanted, there := s.asked(); wanted || !there {
		t.Errorf("after the release: wanted %v, there %v", wanted, there)
	}
	s.clears()
	if _, there := s.asked(); there {
		t.Error("the request of the dead host stays for ever")
	}
	s.back()
	s.mustPass()
	s.wantSays("False/Recovered")
	if s.tainted("a") {
		t.Error("not back in service")
	}
}

// clears is the DPU and the vendor letting go, and everybody noticing.
func (s *fixture) clears() {
	s.t.Helper()
	s.mirror(func(m *storagev1alpha1.VolumeAttachment) {
		m.Finalizers = slices.DeleteFunc(m.Finalizers, func(f string) bool { return f != storagev1alpha1.FinalizerWriterClaim })
	})
	s.mustPass()
	s.grantPass()
	s.grantPass()
}

// TestNodeAttachedKept: a pod that also uses what is not free stays, and with
// it what its host has asked for.
func TestNodeAttachedKept(t *testing.T) {
	s := newFixture(t)
	s.byNode()
	s.addVolume("off", "a")
	kubetest.Change(s.Host, kubetest.DPUVolume("off"), func(v *storagev1alpha1.DPUVolume) { v.Spec.Replication.Failover = storagev1alpha1.FailoverOff })
	s.addPod("both", "a", "vol", "off")
	s.seenDead("a")
	s.mustPass()
	s.retire()
	s.mustPass()
	s.grantPass()
	if wanted, _ := s.asked(); !wanted || !s.hasPod("both") || s.hasPod("app") {
		t.Errorf("wanted %v, both %v, app %v", wanted, s.hasPod("both"), s.hasPod("app"))
	}
}

// TestNodeAttachedReturn: the host comes back before the release. Its kubelet
// unstages, which deletes the request; a second time changes nothing.
func TestNodeAttachedReturn(t *testing.T) {
	s := newFixture(t)
	s.byNode()
	s.seenDead("a")
	s.mustPass()
	s.back()
	s.retire()
	s.mustPass()
	s.mustPass()
	s.grantPass()
	if wanted, _ := s.asked(); !wanted || s.hasPod("app") || s.tainted("a") {
		t.Errorf("a living host's request is its own to give back: wanted %v, pod %v, tainted %v", wanted, s.hasPod("app"), s.tainted("a"))
	}
	for range 2 {
		s.Host.Remove(kubetest.DPUVolumeAttachment("vol", "a"))
	}
	s.clears()
	if _, there := s.asked(); there {
		t.Error("the request stays")
	}
	s.wantPhase(freed)
}
