package attachment

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

func TestPromotionWords(t *testing.T) {
	receipt := &moorv1alpha1.Receipt{Kind: moorv1alpha1.ReceiptDPU, Holder: "dpu-a", Epoch: 4, Message: "the DPU has retired it"}
	replicated := &storagev1alpha1.DPUVolume{Spec: storagev1alpha1.DPUVolumeSpec{Replication: &storagev1alpha1.Replication{}}}
	for name, tc := range map[string]struct {
		of     *storagev1alpha1.DPUVolume
		p      promotion
		silent bool
		want   string
	}{
		"from a replica, after a fence": {
			of: replicated, p: promotion{replica: true, warmth: storagev1alpha1.WarmthPreEmulated, epoch: 5, last: receipt},
			want: "host b has the volume now, from its replica, which was PreEmulated; DPU dpu-b may write under epoch 5. Epoch 4 of DPU dpu-a is over, receipt DPU: the DPU has retired it",
		},
		"from a replica that is not ready": {
			of: replicated, p: promotion{replica: true, epoch: 2},
			want: "host b has the volume now, from its replica, which was not ready; DPU dpu-b may write under epoch 2",
		},
		"of many writers": {
			of: replicated, p: promotion{replica: true, warmth: storagev1alpha1.WarmthAttached},
			want: "host b has the volume now, from its replica, which was Attached",
		},
		"cold": {
			of: replicated, p: promotion{epoch: 5, last: receipt},
			want: "host b has the volume now, cold, as it had no replica; DPU dpu-b may write under epoch 5. Epoch 4 of DPU dpu-a is over, receipt DPU: the DPU has retired it",
		},
		"the first attachment":                  {of: replicated, p: promotion{epoch: 1}, silent: true},
		"a volume that asks for nothing, again": {of: &storagev1alpha1.DPUVolume{}, p: promotion{epoch: 7, last: receipt}, silent: true},
	} {
		t.Run(name, func(t *testing.T) {
			tc.p.host, tc.p.dpu = "b", "dpu-b"
			if got := tc.p.told(tc.of); got == tc.silent {
				t.Errorf("told is %v", got)
			}
			if got := tc.p.message(); !tc.silent && got != tc.want {
				t.Error(cmp.Diff(tc.want, got))
			}
		})
	}
}

// TestTold: each step of a promotion is told once, however often one looks.
func TestTold(t *testing.T) {
	w, r := beside(t)
	recorder := record.NewFakeRecorder(20)
	r.Recorder = recorder
	kubetest.Change(w.Host, kubetest.DPUVolume("vol", corev1.ReadWriteOnce), func(v *storagev1alpha1.DPUVolume) {
		v.Spec.Replication = &storagev1alpha1.Replication{MaxShares: 2, MaxMountReplicaCount: 1}
	})
	heard := func() string {
		var out []string
		for {
			select {
			case e := <-recorder.Events:
				out = append(out, strings.Fields(e)[1])
			default:
				return strings.Join(out, " ")
			}
		}
	}
	look := func(want string) {
		t.Helper()
		for range 3 {
			w.MustReconcile(r, "a-vol")
			w.MustReconcile(r, "b-vol")
		}
		if got := heard(); got != want {
			t.Fatalf("told %q, want %q", got, want)
		}
	}
	look("") // primary and replica stand
	kubetest.Change(w.Host, user("b"), role(storagev1alpha1.RolePrimary))
	look("") // waits for the claim
	kubetest.Change(w.DPU, claimOf(w), func(c *moorv1alpha1.WriterClaim) {
		c.Status = &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFree, Epoch: 1}
	})
	w.MustReconcile(r, "b-vol")
	look("Promoted")
	show := func(yes bool) {
		kubetest.Change(w.DPU, mirror("b"), func(m *storagev1alpha1.VolumeAttachment) {
			m.Status.DPU.Attached, m.Status.DPU.PreEmulated, m.Status.DPU.Epoch = yes, false, 2
		})
	}
	show(true)
	look("Attached")
	show(false)
	look("")
	show(true)
	look("Attached")
}
