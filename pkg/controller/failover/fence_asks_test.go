package failover

import (
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/nodehealth"
	"github.com/moor-storage/moor/pkg/writer"
)

// TestRevoke: the storage is asked to revoke a DPU that is silent, or has lost its path, once
// its vendor vouches, was asked to attach, and snap-controller has noticed the end. What is
// still missing is told by the evidence, and nothing is deleted before.
func TestRevoke(t *testing.T) {
	known := writer.Revocation{Driver: "vendor", Vouched: true, Asked: true, Noticed: true}
	with := func(change func(*writer.Revocation)) writer.Revocation {
		out := known
		change(&out)
		return out
	}
	driver := func() *storagev1.CSIDriver {
		return &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "vendor"}}
	}
	vendor := func(s *fixture) { s.DPU.Remove(driver()) }
	for name, tc := range map[string]struct {
		play  func(*fixture)
		is    func(*pass, *target)
		want  writer.Revocation
		asked bool
	}{
		"silent":                    {func(*fixture) {}, together(), known, true},
		"heard":                     {func(*fixture) {}, dpuHeard, writer.Revocation{}, false},
		"heard, its path is lost":   {func(*fixture) {}, together(dpuHeard, pathLost), with(func(r *writer.Revocation) { r.Cut = true }), true},
		"silent, its path is lost":  {func(*fixture) {}, pathLost, known, true},
		"another DPU":               {func(*fixture) {}, func(_ *pass, t *target) { t.mirror.Spec.NodeName = "dpu-z" }, writer.Revocation{}, false},
		"no attachment":             {func(*fixture) {}, func(_ *pass, t *target) { t.mirror = nil }, writer.Revocation{}, false},
		"not asked to attach":       {func(*fixture) {}, func(_ *pass, t *target) { t.mirror.Spec.VolumeAttachmentRef = nil }, with(func(r *writer.Revocation) { r.Asked = false }), false},
		"the end is not noticed":    {func(*fixture) {}, func(_ *pass, t *target) { t.mirror.Status.StorageDetaching = false }, with(func(r *writer.Revocation) { r.Noticed = false }), false},
		"it does not end":           {func(*fixture) {}, func(_ *pass, t *target) { t.mirror.DeletionTimestamp = nil }, with(func(r *writer.Revocation) { r.Noticed = false }), false},
		"the vendor does not vouch": {vendor, together(), with(func(r *writer.Revocation) { r.Vouched = false }), false},
		"it vouches for no":         {func(s *fixture) { vendor(s); s.DPU.Add(driver()) }, together(), with(func(r *writer.Revocation) { r.Vouched = false }), false},
		"the volume is gone":        {func(s *fixture) { s.DPU.Remove(&storagev1alpha1.Volume{ObjectMeta: kubetest.DPUObject("vol")}) }, together(), writer.Revocation{}, false},
		"the storage refuses": {func(s *fixture) {
			kubetest.Change(s.DPU, &storagev1alpha1.SVVolumeAttachment{ObjectMeta: kubetest.DPUObject("a-vol")}, func(sv *storagev1alpha1.SVVolumeAttachment) {
				sv.Status.DetachError = &storagev1.VolumeError{Message: "busy"}
			})
		}, together(), with(func(r *writer.Revocation) { r.Says = "busy" }), true},
		"the request is gone": {func(s *fixture) {
			sv, _ := s.sv()
			s.DPU.Remove(sv)
			s.requestStripped()
		}, together(), with(func(r *writer.Revocation) { r.Gone = true }), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			s.revocable()
			tc.play(s)
			p, target := s.fencePass()
			tc.is(p, target)
			got, err := s.f.fencer.revoke(t.Context(), p, target)
			if err != nil || got != tc.want {
				t.Errorf("%+v, %v, want %+v", got, err, tc.want)
			}
			if sv, found := s.sv(); found && !sv.DeletionTimestamp.IsZero() != tc.asked {
				t.Errorf("the storage is asked: %t", !tc.asked)
			}
		})
	}
}

// TestEnd: only the attachment of the DPU that holds the right is deleted, and what is gone on
// with was read after that. A DPU that is heard has only then been told, so it is waited for.
func TestEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		is           func(*pass, *target)
		going        bool
		ends, waits  bool
		reads        int
		rememberedBy bool
	}{
		"a silent DPU":         {is: together(), ends: true, reads: 1, rememberedBy: true},
		"a DPU that is heard":  {is: dpuHeard, ends: true, waits: true, rememberedBy: true},
		"it ends already":      {is: together(), going: true},
		"and the cache had it": {is: func(_ *pass, t *target) { t.cached = true }, going: true, reads: 1, rememberedBy: true},
		"of another DPU":       {is: func(_ *pass, t *target) { t.claim.Status.Holder = "dpu-z" }},
		"there is none":        {is: func(_ *pass, t *target) { t.mirror = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			if tc.going {
				s.DPU.Remove(kubetest.VolumeAttachment("a-vol", "vol", "dpu-a"))
			}
			p, target := s.fencePass()
			target.attachment.UID = types.UID(name)
			inTheFence(p, target)
			tc.is(p, target)
			before := s.LiveReads()
			err := s.f.fencer.end(t.Context(), p, target)
			if n := s.LiveReads() - before; (err != nil) != tc.waits || n != tc.reads {
				t.Errorf("%v after %d reads, want %d", err, n, tc.reads)
			}
			m, _ := kubetest.Read(s.DPU, kubetest.VolumeAttachment("a-vol", "vol", "dpu-a"))
			if ends := !m.DeletionTimestamp.IsZero(); ends != (tc.ends || tc.going) || target.cached {
				t.Errorf("the attachment ends: %t; what a cache had is gone on with: %t", ends, target.cached)
			}
			if (tc.ends || tc.going) && target.mirror.DeletionTimestamp.IsZero() {
				t.Error("the pass does not know that it ends")
			}
			if _, left := s.f.fencer.targets.asked.Get(types.UID(name), s.Clock.Now()); (left > 0) != tc.rememberedBy {
				t.Errorf("it is read again after %s", left)
			}
		})
	}
}

// TestConfirm: the lease that counts is that of the holder. It is a receipt only as the API
// server has it, and is read there only of a claim in Fencing.
func TestConfirm(t *testing.T) {
	over := writer.Lease{Given: true, Ended: true}
	good := writer.Lease{Given: true, Left: time.Minute}
	for name, tc := range map[string]struct {
		is    func(*pass, *target)
		lease writer.Lease
		over  bool
		reads int
	}{
		"over":                           {inTheFence, over, true, 1},
		"good":                           {inTheFence, good, false, 0},
		"none":                           {inTheFence, writer.Lease{}, false, 0},
		"over, and granted":              {together(), over, true, 0},
		"of another DPU than the pass's": {together(inTheFence, func(p *pass, _ *target) { p.node.Spec.DPUName = "dpu-c" }), good, true, 1},
		"of a DPU that gives none":       {together(inTheFence, strangeHolder), over, false, 0},
		"renewed meanwhile":              {inTheFence, over, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newLeaseStage(t)
			p, target := s.fencePass()
			p.heartbeat = func(string) nodehealth.Beat { return nodehealth.Stale }
			p.lease = tc.lease
			tc.is(p, target)
			there, _ := kubetest.Read(s.DPU, kubetest.DPUStorageNode("dpu-a"))
			s.f.leases.heard(there)
			s.Step(71 * time.Second)
			if name == "renewed meanwhile" {
				s.CacheShows(there)
				s.alone(func(n *moorv1alpha1.DPUStorageNode) { n.Status.DPU.Sequence++; n.Status.DPU.Lease.Sequence++ })
			}
			before := s.LiveReads()
			lease, err := s.f.leases.confirm(t.Context(), p, target)
			if n := s.LiveReads() - before; err != nil || lease.Over() != tc.over || n != tc.reads {
				t.Errorf("%+v, %v after %d reads, want over %t after %d", lease, err, n, tc.over, tc.reads)
			}
		})
	}
}
