package attachment

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

func TestStatusAfter(t *testing.T) {
	born := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	mirror := func(shown, prepared bool) *storagev1alpha1.VolumeAttachment {
		m := &storagev1alpha1.VolumeAttachment{}
		m.Status.StorageAttached = shown || prepared
		m.Status.DPU.Attached, m.Status.DPU.PreEmulated = shown, prepared
		return m
	}
	exhausted := mirror(false, false)
	exhausted.Status.DPU.Exhausted = true
	for name, c := range map[string]struct {
		age     time.Duration
		mirror  *storagev1alpha1.VolumeAttachment
		role    storagev1alpha1.Role
		was     storagev1alpha1.Warmth
		waiting string
		want    time.Duration
	}{
		"on its way":                        {age: time.Second, mirror: mirror(false, false), want: time.Second},
		"on its way for long":               {age: time.Minute, mirror: mirror(false, false)},
		"a clock ahead":                     {age: -time.Hour, mirror: mirror(false, false), want: kube.StatusGrace},
		"shown":                             {age: time.Second, mirror: mirror(true, false)},
		"a replica that is ready":           {age: time.Second, mirror: mirror(false, true), role: storagev1alpha1.RoleReplica},
		"a primary that is only prepared":   {age: time.Second, mirror: mirror(false, true), want: time.Second},
		"waits for what users have to know": {age: time.Second, waiting: "another holds it"},
		"no function is left":               {age: time.Second, mirror: exhausted},
		"shown no longer":                   {age: time.Second, mirror: mirror(false, false), was: storagev1alpha1.WarmthAttached},
		"prepared no longer":                {age: time.Second, mirror: mirror(false, false), was: storagev1alpha1.WarmthPreEmulated},
	} {
		t.Run(name, func(t *testing.T) {
			a := &storagev1alpha1.DPUVolumeAttachment{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(born)}}
			a.Spec.Role, a.Status.Warmth = c.role, c.was
			if c.mirror != nil {
				c.mirror.Spec.Role = c.role
			}
			s := &pass{attachment: a, mirror: c.mirror, sound: c.mirror != nil, waiting: c.waiting}
			if got := s.statusAfter(born.Add(c.age)); got != c.want {
				t.Errorf("keeps the status back for %s, want %s", got, c.want)
			}
		})
	}
}
