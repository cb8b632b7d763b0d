package dpf

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

func TestUnbegun(t *testing.T) {
	now := metav1.Now()
	for name, c := range map[string]struct {
		change func(*storagev1alpha1.DPUVolume)
		want   bool
	}{
		"nothing was looked at": {func(*storagev1alpha1.DPUVolume) {}, true},
		"no vendor yet":         {func(v *storagev1alpha1.DPUVolume) { v.Status.Conditions = scheduled(metav1.ConditionFalse) }, true},
		"a vendor was chosen":   {func(v *storagev1alpha1.DPUVolume) { v.Status.Conditions = scheduled(metav1.ConditionTrue) }, false},
		"bound":                 {func(v *storagev1alpha1.DPUVolume) { v.Status.Phase = storagev1alpha1.DPUVolumeBound }, false},
		"being deleted":         {func(v *storagev1alpha1.DPUVolume) { v.DeletionTimestamp = &now }, false},
		"another of that name":  {func(v *storagev1alpha1.DPUVolume) { v.UID = "other" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := &storagev1alpha1.DPUVolume{ObjectMeta: metav1.ObjectMeta{UID: "uid"}}
			c.change(v)
			if got := unbegun(v, "uid"); got != c.want {
				t.Errorf("unbegun is %t, want %t", got, c.want)
			}
		})
	}
}

func scheduled(status metav1.ConditionStatus) []metav1.Condition {
	return []metav1.Condition{{Type: storagev1alpha1.ConditionScheduled, Status: status}}
}

func TestPatienceLeavesTimeToAnswer(t *testing.T) {
	o := Options{Timeout: time.Minute}
	if got := o.patience(context.Background()); got != time.Minute {
		t.Errorf("without a deadline it waits %s, want the timeout", got)
	}
	near, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if got := o.patience(near); got > 8*time.Second {
		t.Errorf("of ten seconds it waits %s, which leaves too little for the answer", got)
	}
}
