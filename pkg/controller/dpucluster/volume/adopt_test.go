package volume_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// TestTheClaimOfDPFIsTakenOver: a vendor's claim that DPF made for the same DPUVolume goes on as that of
// the Volume; one of another, or with an owner, does not.
func TestTheClaimOfDPFIsTakenOver(t *testing.T) {
	const dpf = "users/v"
	owner := []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "x", UID: "x"}}
	for name, tc := range map[string]struct {
		volume, claim string
		owners        []metav1.OwnerReference
		taken         bool
	}{
		"DPF's":                   {dpf, dpf, nil, true},
		"of another DPUVolume":    {dpf, "users/other", nil, false},
		"without a word":          {dpf, "", nil, false},
		"neither says whose":      {"", "", nil, false},
		"what has an owner":       {dpf, dpf, owner, false},
		"the volume says nothing": {"", dpf, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := newFixture(t)
			m.available("v", corev1.PersistentVolumeReclaimDelete)
			said := func(value string) map[string]string {
				return map[string]string{storagev1alpha1.AnnotationOwnedByDPUVolume: value}
			}
			m.edit(func(v *storagev1alpha1.Volume) {
				v.Annotations, v.Finalizers = said(tc.volume), nil
				v.Spec.Volume.ID = "v"
			})
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: kubetest.DPUObject("v-pvc")}
			kubetest.Change(m.Cluster, claim, func(c *corev1.PersistentVolumeClaim) {
				c.Annotations, c.OwnerReferences = said(tc.claim), tc.owners
			})
			m.settle("v")
			m.Get(claim, "v-pvc")
			v := m.volume("v")
			taken := len(claim.OwnerReferences) == 1 && claim.OwnerReferences[0].UID == v.UID
			if taken != tc.taken || strings.Contains(v.Status.Message, "does not belong to this Volume") == tc.taken {
				t.Errorf("taken over: %t, message %q", taken, v.Status.Message)
			}
			if v.Status.State != storagev1alpha1.VolumeAvailable || !m.Has(&corev1.PersistentVolume{}, "pv-v") {
				t.Errorf("status %+v", v.Status)
			}
		})
	}
}
