package failover

import (
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// TestIllegal: the censor that watches all these tests knows what is illegal.
func TestIllegal(t *testing.T) {
	held := moorv1alpha1.WriterClaimStatus{Phase: fencing, Holder: "dpu-a", Attachment: "a-vol", Epoch: 4}
	receipt := func(kind moorv1alpha1.ReceiptKind, epoch int64) moorv1alpha1.WriterClaimStatus {
		return moorv1alpha1.WriterClaimStatus{Phase: freed, Epoch: 4, Receipts: []moorv1alpha1.Receipt{{Kind: kind, Holder: "dpu-a", Epoch: epoch}}}
	}
	as := func(c moorv1alpha1.WriterClaimStatus, phase moorv1alpha1.ClaimPhase) moorv1alpha1.WriterClaimStatus {
		c.Phase = phase
		return c
	}
	retired := storagev1alpha1.VolumeAttachmentDPU{RetiredEpoch: 4}
	vouched := &moorv1alpha1.OperatorReceipt{Epoch: 4}
	for name, tc := range map[string]struct {
		law   law
		legal bool
	}{
		"fence":                        {law{before: as(held, granted), after: held}, true},
		"by the DPU":                   {law{before: held, after: receipt("DPU", 4), dpu: retired}, true},
		"by the storage":               {law{before: held, after: receipt("Storage", 4), storageGone: true, ended: true}, true},
		"by the medium":                {law{before: held, after: receipt("Medium", 4), fencedBelow: 5}, true},
		"the medium takes the epoch":   {law{before: held, after: receipt("Medium", 4), fencedBelow: 4}, false},
		"medium without Fencing":       {law{before: as(held, granted), after: receipt("Medium", 4), fencedBelow: 5}, false},
		"by an operator":               {law{before: held, after: receipt("Operator", 4), operator: vouched}, true},
		"no receipt":                   {law{before: held, after: moorv1alpha1.WriterClaimStatus{Phase: freed, Epoch: 4}, dpu: retired}, false},
		"not retired":                  {law{before: held, after: receipt("DPU", 4)}, false},
		"retired before":               {law{before: held, after: receipt("DPU", 4), dpu: storagev1alpha1.VolumeAttachmentDPU{RetiredEpoch: 3}}, false},
		"still attached":               {law{before: held, after: receipt("DPU", 4), dpu: storagev1alpha1.VolumeAttachmentDPU{RetiredEpoch: 4, Attached: true}}, false},
		"of an older epoch":            {law{before: held, after: receipt("DPU", 3), dpu: retired}, false},
		"storage still attached":       {law{before: held, after: receipt("Storage", 4), ended: true}, false},
		"could be attached again":      {law{before: held, after: receipt("Storage", 4), storageGone: true}, false},
		"storage without Fencing":      {law{before: as(held, granted), after: receipt("Storage", 4), storageGone: true, ended: true}, false},
		"no operator vouches":          {law{before: held, after: receipt("Operator", 4)}, false},
		"operator without Fencing":     {law{before: as(held, granted), after: receipt("Operator", 4), operator: vouched}, false},
		"vouches for another epoch":    {law{before: held, after: receipt("Operator", 4), operator: &moorv1alpha1.OperatorReceipt{Epoch: 3}}, false},
		"by the lease":                 {law{before: held, after: receipt("LeaseBound", 4), leaseOver: true}, true},
		"lease without Fencing":        {law{before: as(held, granted), after: receipt("LeaseBound", 4), leaseOver: true}, false},
		"by its power":                 {law{before: held, after: receipt("Power", 4), powerless: true}, true},
		"power without Fencing":        {law{before: as(held, granted), after: receipt("Power", 4), powerless: true}, false},
		"it has power":                 {law{before: held, after: receipt("Power", 4)}, false},
		"lease may be good":            {law{before: held, after: receipt("LeaseBound", 4)}, false},
		"back to Granted":              {law{before: held, after: as(held, granted)}, false},
		"a grant":                      {law{before: moorv1alpha1.WriterClaimStatus{Phase: freed, Epoch: 4}, after: as(held, granted)}, false},
		"a new epoch":                  {law{before: as(held, granted), after: moorv1alpha1.WriterClaimStatus{Phase: fencing, Holder: "dpu-a", Attachment: "a-vol", Epoch: 5}}, false},
		"another holder while Fencing": {law{before: as(held, granted), after: moorv1alpha1.WriterClaimStatus{Phase: fencing, Holder: "dpu-b", Attachment: "a-vol", Epoch: 4}}, false},
	} {
		if words := tc.law.broken(); (words == "") != tc.legal {
			t.Errorf("%s: %q, want legal %v", name, words, tc.legal)
		}
	}
}

// censor holds every write of a claim against the law.
func (s *fixture) censor(_ string, o client.Object) {
	c, ok := o.(*moorv1alpha1.WriterClaim)
	if !ok {
		return
	}
	s.censoring.Lock()
	defer s.censoring.Unlock()
	before := s.claims[c.Name]
	m, found := kubetest.Read(s.DPU, &storagev1alpha1.VolumeAttachment{ObjectMeta: kubetest.DPUObject(before.Attachment)})
	_, attached := kubetest.Read(s.DPU, &storagev1alpha1.SVVolumeAttachment{ObjectMeta: kubetest.DPUObject(before.Attachment)})
	l := law{before: before, after: *c.Status, ended: found && !m.DeletionTimestamp.IsZero(), storageGone: !attached && found && m.Status.Revocation != nil && m.Status.Revocation.AttachmentUID == m.UID, operator: c.Spec.OperatorReceipt}
	l.leaseOver, l.powerless = s.leaseOver(), s.powerless(c.Name)
	if found && m.Status.Fence != nil && m.Status.Fence.AttachmentUID == m.UID {
		l.fencedBelow = m.Status.Fence.Epoch
	}
	if found {
		l.dpu, l.released = m.Status.DPU, len(m.Finalizers) == 0 || !strings.Contains(strings.Join(m.Finalizers, " "), storagev1alpha1.FinalizerDPUAttachment)
	}
	if words := l.broken(); words != "" {
		s.t.Errorf("%s: %+v -> %+v: %s", c.Name, before, *c.Status, words)
	}
	if c.Status.Phase == fencing && before.Phase != fencing {
		s.fenced[c.Name] = s.Clock.Now()
	}
	s.claims[c.Name] = *c.Status.DeepCopy()
}

// law is one change of a claim and the facts of the world at that moment.
type law struct {
	before, after moorv1alpha1.WriterClaimStatus
	// ended: the VolumeAttachment is being deleted; released: without its
	// DPU's hold.
	// storageGone: the request is gone, and the attacher says that it was done.
	ended, released, storageGone bool
	dpu                          storagev1alpha1.VolumeAttachmentDPU
	operator                     *moorv1alpha1.OperatorReceipt
	// leaseOver: the DPU gives a lease, whose bound passed since it was renewed.
	leaseOver bool
	// powerless: the DPU was reset, or its host was off, after the claim went to Fencing.
	powerless bool
	// fencedBelow: the storage accepts nothing below this epoch.
	fencedBelow int64
}

// broken says which rule the change breaks; it shares no code with
// the reconcilers.
func (l law) broken() string {
	b, a := l.before, l.after
	switch {
	case a.Epoch != b.Epoch:
		return "the epoch changed"
	case b.Phase == moorv1alpha1.ClaimGranted && a.Phase == moorv1alpha1.ClaimFencing:
		if a.Holder != b.Holder || a.Attachment != b.Attachment || len(a.Receipts) != len(b.Receipts) {
			return "more than the phase changed"
		}
		return ""
	case a.Phase != moorv1alpha1.ClaimFree || b.Phase == moorv1alpha1.ClaimFree:
		return "not a transition of fence"
	case len(a.Receipts) == 0:
		return "freed without a receipt"
	}
	r := a.Receipts[len(a.Receipts)-1]
	if r.Epoch != b.Epoch || r.Holder != b.Holder || len(a.Receipts) != min(len(b.Receipts)+1, 8) {
		return "the receipt is not of this epoch and holder"
	}
	proved := map[moorv1alpha1.ReceiptKind]bool{
		moorv1alpha1.ReceiptDPU:        !l.dpu.Attached && (l.dpu.RetiredEpoch >= b.Epoch || l.ended && l.released),
		moorv1alpha1.ReceiptMedium:     b.Phase == moorv1alpha1.ClaimFencing && l.fencedBelow > b.Epoch,
		moorv1alpha1.ReceiptStorage:    b.Phase == moorv1alpha1.ClaimFencing && l.storageGone && l.ended,
		moorv1alpha1.ReceiptLeaseBound: b.Phase == moorv1alpha1.ClaimFencing && l.leaseOver,
		moorv1alpha1.ReceiptPower:      b.Phase == moorv1alpha1.ClaimFencing && l.powerless,
		moorv1alpha1.ReceiptOperator:   b.Phase == moorv1alpha1.ClaimFencing && l.operator != nil && l.operator.Epoch == b.Epoch,
	}
	if !proved[r.Kind] {
		return "the world does not bear out a receipt of kind " + string(r.Kind)
	}
	return ""
}
