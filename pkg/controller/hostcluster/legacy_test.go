package hostcluster_test

import (
	"testing"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/controller/hostcluster/hostclustertest"
)

// TestOwnMirror: what is deleted with an owner. DPF marks its own by an
// annotation alone; an annotation of another, or a namesake's label, says no.
func TestOwnMirror(t *testing.T) {
	label := func(uid string) map[string]string { return map[string]string{storagev1alpha1.LabelOwnerUID: uid} }
	owned := func(key, value string) map[string]string { return map[string]string{key: value} }
	const volume, attachment = storagev1alpha1.AnnotationOwnedByDPUVolume, storagev1alpha1.AnnotationOwnedByDPUVolumeAttachment
	for name, tc := range map[string]struct {
		labels, annotations map[string]string
		want                bool
	}{
		"made by Moor":                      {label("1"), owned(volume, kubetest.HostNamespace+"/vol"), true},
		"made by Moor for a namesake":       {label("2"), owned(volume, kubetest.HostNamespace+"/vol"), false},
		"a volume made by DPF":              {nil, owned(volume, kubetest.HostNamespace+"/vol"), true},
		"an attachment made by DPF":         {nil, owned(attachment, kubetest.HostNamespace+"/vol"), true},
		"made by DPF for another":           {nil, owned(volume, kubetest.HostNamespace+"/other"), false},
		"made by DPF for another namespace": {nil, owned(volume, "other/vol"), false},
		"of unknown origin":                 {nil, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := kubetest.New(t)
			owner := &storagev1alpha1.DPUVolume{}
			owner.Namespace, owner.Name, owner.UID = kubetest.HostNamespace, "vol", "1"
			m := &storagev1alpha1.Volume{ObjectMeta: kubetest.DPUObject("vol")}
			m.Labels, m.Annotations = tc.labels, tc.annotations
			w.DPU.Add(m)
			got, err := hostclustertest.Clusters(w).OwnMirror(t.Context(), owner, &storagev1alpha1.Volume{})
			if err != nil || got != tc.want {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}
