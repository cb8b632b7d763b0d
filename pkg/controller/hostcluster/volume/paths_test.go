package volume

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

// TestPaths: one DPU that does not reach the storage is another matter than all of them.
func TestPaths(t *testing.T) {
	type at struct {
		host   string
		warmth storagev1alpha1.Warmth
		path   metav1.ConditionStatus // "": the condition is absent
	}
	const shown, ready, none = storagev1alpha1.WarmthAttached, storagev1alpha1.WarmthPreEmulated, storagev1alpha1.WarmthStorageAttached
	for name, c := range map[string]struct {
		had         bool
		attachments []at
		want        string
		words       []string
	}{
		"never lost":            {false, []at{{"a", shown, ""}, {"b", ready, ""}}, "", nil},
		"one of two":            {false, []at{{"b", ready, ""}, {"a", shown, metav1.ConditionFalse}}, "PathLost", []string{"1 of the 2 DPUs", "host a, no answer"}},
		"a replica's":           {false, []at{{"a", shown, ""}, {"b", ready, metav1.ConditionFalse}}, "PathLost", []string{"host b"}},
		"all":                   {false, []at{{"b", ready, metav1.ConditionFalse}, {"a", shown, metav1.ConditionFalse}}, "AllPathsLost", []string{"nothing is moved", "host a, no answer; host b, no answer"}},
		"the only one":          {false, []at{{"a", shown, metav1.ConditionFalse}}, "AllPathsLost", []string{"host a"}},
		"no device is no way":   {false, []at{{"a", shown, metav1.ConditionFalse}, {"b", none, ""}}, "AllPathsLost", nil},
		"found again":           {true, []at{{"a", shown, metav1.ConditionTrue}}, "Success", nil},
		"attached nowhere":      {true, nil, "Success", nil},
		"attached nowhere ever": {false, nil, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			var p paths
			for _, a := range c.attachments {
				o := &storagev1alpha1.DPUVolumeAttachment{Spec: storagev1alpha1.DPUVolumeAttachmentSpec{DPUNodeName: a.host}}
				o.Status.Warmth = a.warmth
				if a.path != "" {
					o.Status.Conditions = []metav1.Condition{{Type: storagev1alpha1.ConditionPathHealthy, Status: a.path, Message: "no answer"}}
				}
				p.count(o)
			}
			var list []metav1.Condition
			if c.had {
				list = []metav1.Condition{{Type: storagev1alpha1.ConditionPathHealthy, Status: metav1.ConditionFalse}}
			}
			p.tell(kube.Conditions{List: &list})
			got, message := "", ""
			if len(list) > 0 {
				got, message = list[0].Reason, list[0].Message
			}
			if got != c.want {
				t.Fatalf("%s (%s), want %s", got, message, c.want)
			}
			for _, w := range c.words {
				if !strings.Contains(message, w) {
					t.Errorf("%q lacks %q", message, w)
				}
			}
		})
	}
}
