package served

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

func TestWhole(t *testing.T) {
	attachment := func(role storagev1alpha1.Role) client.Object {
		return &storagev1alpha1.DPUVolumeAttachment{Spec: storagev1alpha1.DPUVolumeAttachmentSpec{Role: role}}
	}
	for _, row := range []struct {
		name string
		read client.Object
		want string
	}{
		{"a replica", attachment(storagev1alpha1.RoleReplica), ""},
		{"a primary", attachment(storagev1alpha1.RolePrimary), ""},
		{"of another's schema", attachment(""), "the CRDs of the host cluster are older than this program, or another's: the API server drops " +
			"DPUVolumeAttachment.spec.role; apply Moor's CRDs (crds/host in the host cluster, crds/dpu in the DPU cluster)"},
		{"another kind", &storagev1alpha1.DPUVolume{}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.read.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "kubectl"}})
			got := ""
			transform := whole("host cluster", cache.TransformStripManagedFields(), func(err error) { got = err.Error() })
			o, err := transform(row.read)
			if err != nil || o != any(row.read) || row.read.GetManagedFields() != nil {
				t.Errorf("transformed to %v, %v, with managed fields %v", o, err, row.read.GetManagedFields())
			}
			if got != row.want {
				t.Errorf("ends with\n%q, want\n%q", got, row.want)
			}
		})
	}
}
