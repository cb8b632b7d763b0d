package dpu

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// TestRefusal holds the decision to its rule over every combination.
func TestRefusal(t *testing.T) {
	attachment := func(epoch int64) *storagev1alpha1.VolumeAttachment {
		a := &storagev1alpha1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "a1"}}
		a.Spec.Source.VolumeRef = &storagev1alpha1.ObjectRef{Name: "v1"}
		a.Spec.Epoch = epoch
		return a
	}
	for _, claim := range []*moorv1alpha1.WriterClaim{nil, {}} {
		if refusal("d1", attachment(1), claim) == "" {
			t.Errorf("allowed by claim %+v", claim)
		}
	}
	allowed := 0
	for _, phase := range []moorv1alpha1.ClaimPhase{"", moorv1alpha1.ClaimFree, moorv1alpha1.ClaimGranted, moorv1alpha1.ClaimFencing, "Later"} {
		for _, holder := range []string{"", "d1", "d2"} {
			for _, name := range []string{"", "a1", "a2"} {
				for _, epoch := range []int64{0, 1, 2} {
					for _, mine := range []int64{0, 1, 2} {
						for _, role := range []storagev1alpha1.Role{"", storagev1alpha1.RolePrimary, storagev1alpha1.RoleReplica} {
							for _, retired := range []int64{0, 1, 2} {
								claim := &moorv1alpha1.WriterClaim{Status: &moorv1alpha1.WriterClaimStatus{Phase: phase, Holder: holder, Attachment: name, Epoch: epoch}}
								want := phase == "Granted" && holder == "d1" && name == "a1" && epoch == mine && mine != 0 && role != "Replica" && epoch > retired
								a := attachment(mine)
								a.Spec.Role, a.Status.DPU.RetiredEpoch = role, retired
								got := refusal("d1", a, claim)
								if (got == "") != want {
									t.Errorf("%s: allowed is %v: %q", fmt.Sprint(*claim.Status, mine, role, retired), got == "", got)
								}
								fenced := fencedEpoch("d1", a, claim)
								if wantFenced := phase == "Fencing" && holder == "d1" && name == "a1"; wantFenced != (fenced != 0 || epoch == 0 && wantFenced) || (fenced != 0 && fenced != epoch) {
									t.Errorf("%s: fenced epoch is %d", fmt.Sprint(*claim.Status), fenced)
								}
								if want {
									allowed++
								}
							}
						}
					}
				}
			}
		}
	}
	// Epoch 1 over no retired one, epoch 2 over none and over 1; each in
	// two ways to say Primary.
	if allowed != 6 {
		t.Fatalf("%d combinations are allowed, want 6", allowed)
	}
}

func TestSingleWriter(t *testing.T) {
	volume := func(modes ...corev1.PersistentVolumeAccessMode) *storagev1alpha1.Volume {
		return &storagev1alpha1.Volume{Spec: storagev1alpha1.VolumeSpec{Request: storagev1alpha1.VolumeRequest{AccessModes: modes}}}
	}
	plain, marked, granted := &storagev1alpha1.VolumeAttachment{}, &storagev1alpha1.VolumeAttachment{}, &storagev1alpha1.VolumeAttachment{}
	marked.Finalizers = []string{storagev1alpha1.FinalizerWriterClaim}
	granted.Spec.Epoch = 3
	cases := map[string]struct {
		attachment *storagev1alpha1.VolumeAttachment
		volume     *storagev1alpha1.Volume
		want       bool
	}{
		"RWO":                {plain, volume(corev1.ReadWriteOnce), true},
		"RWOP":               {plain, volume(corev1.ReadWriteOncePod), true},
		"no mode":            {plain, volume(), true},
		"RWX":                {plain, volume(corev1.ReadWriteMany), false},
		"ROX":                {plain, volume(corev1.ReadOnlyMany), false},
		"RWX, but marked":    {marked, volume(corev1.ReadWriteMany), true},
		"RWX, but granted":   {granted, volume(corev1.ReadWriteMany), true},
		"gone":               {plain, nil, false},
		"gone, once granted": {granted, nil, true},
	}
	for name, c := range cases {
		if got := singleWriter(c.attachment, c.volume); got != c.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

// TestStaleClaim: the cache shows a claim that is granted to this DPU; it was
// freed. Nothing may be exposed.
func TestStaleClaim(t *testing.T) {
	c := newCluster(t)
	m := newMachine(t, c, "dpu-1")
	c.volume("v1", corev1.ReadWriteOnce)
	a := c.attachment("v1", "dpu-1")
	c.grant(a, 1)
	granted := &moorv1alpha1.WriterClaim{}
	c.must(c.Get(t.Context(), types.NamespacedName{Namespace: ns, Name: "v1"}, granted))
	c.claim("v1", &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFree, Epoch: 1})
	m.o.Client = interceptor.NewClient(c.WithWatch, interceptor.Funcs{
		Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if claim, ok := o.(*moorv1alpha1.WriterClaim); ok {
				granted.DeepCopyInto(claim)
				return nil
			}
			return w.Get(ctx, key, o, opts...)
		},
	})
	m.settle(a.Name)
	if len(m.shown()) != 0 {
		t.Fatalf("shown %v", m.shown())
	}
}
