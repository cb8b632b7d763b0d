package kubetest

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
)

// TestLoseWrite: the write named fails, in whichever cluster it is, with effect
// or without, and no other.
func TestLoseWrite(t *testing.T) {
	for _, late := range []bool{false, true} {
		c := New(t)
		c.Host.Add(DPUVolume("not-counted"))
		var made []string
		c.AfterWrite(func(verb string, o client.Object) { made = append(made, verb+" "+o.GetName()) })
		c.LoseWrite(2, late)
		for i, write := range []func() error{
			func() error { return c.Host.Client.Create(t.Context(), DPUVolume("first")) },
			func() error { return c.DPU.Client.Create(t.Context(), Volume("second", "gold")) },
			func() error { return c.Host.Client.Delete(t.Context(), DPUVolume("first")) },
		} {
			if err := write(); errors.Is(err, ErrLost) != (i == 1) {
				t.Errorf("late %v: write %d: %v", late, i+1, err)
			}
		}
		if there := c.DPU.Has(&storagev1alpha1.Volume{}, "second"); there != late || len(made) == 3 != late {
			t.Errorf("late %v: the lost write had effect %v, and %q were seen", late, there, made)
		}
		if c.Writes() != 3 || c.WritesOn(&storagev1alpha1.DPUVolume{}) != 2 || c.WritesOn(&storagev1alpha1.Volume{}) != 1 {
			t.Errorf("late %v: %d writes, %d on DPUVolumes, %d on Volumes", late, c.Writes(), c.WritesOn(&storagev1alpha1.DPUVolume{}), c.WritesOn(&storagev1alpha1.Volume{}))
		}
	}
}

// TestOldCache: what reconcilers read is old, what they read live is not.
func TestOldCache(t *testing.T) {
	c := NewHost(t, index.Host())
	c.Add(DPUVolume("vol"))
	var none storagev1alpha1.DPUVolumeList
	c.CacheLists(&none)
	c.CacheHides(DPUVolume("vol"))
	v, list, key := &storagev1alpha1.DPUVolume{}, &storagev1alpha1.DPUVolumeList{}, client.ObjectKeyFromObject(DPUVolume("vol"))
	if err := c.Client.Get(t.Context(), key, v); !apierrors.IsNotFound(err) {
		t.Errorf("hidden, but read: %v", err)
	}
	if err := c.Live.Get(t.Context(), key, v); err != nil || v.Spec.DPUStoragePolicyName != "policy" {
		t.Errorf("live: %v, %+v", err, v.Spec)
	}
	if err := c.Client.List(t.Context(), list); err != nil || len(list.Items) != 0 {
		t.Errorf("listed %d: %v", len(list.Items), err)
	}
	c.CacheLists(&storagev1alpha1.DPUVolumeList{Items: []storagev1alpha1.DPUVolume{*v, *DPUVolume("other")}})
	for _, o := range []client.ListOption{client.MatchingFields{index.DPUVolumeByPolicy: "policy"}, client.InNamespace(HostNamespace)} {
		if err := c.Client.List(t.Context(), list, o); err != nil || len(list.Items) != 2 {
			t.Errorf("%v: listed %d: %v", o, len(list.Items), err)
		}
	}
	for _, o := range []client.ListOption{
		client.MatchingFields{index.DPUVolumeByPolicy: "another"}, client.InNamespace("another"), client.MatchingLabels{"a": "b"},
	} {
		if err := c.Client.List(t.Context(), list, o); err != nil || len(list.Items) != 0 {
			t.Errorf("%v: listed %d: %v", o, len(list.Items), err)
		}
	}
	if err := c.Client.List(t.Context(), list, client.MatchingFields{"no": "index"}); err == nil {
		t.Error("a list by a field without an index was answered")
	}
	old := v.DeepCopy()
	c.CacheShows(old)
	Change(c, v, func(v *storagev1alpha1.DPUVolume) {
		v.Spec.DPUStoragePolicyName, v.Status.Phase = "other", storagev1alpha1.DPUVolumeBound
	})
	if err := c.Client.Get(t.Context(), key, v); err != nil || v.Spec.DPUStoragePolicyName != "policy" || v.Status.Phase != "" {
		t.Errorf("the cache shows %+v: %v", v, err)
	}
	c.CacheIsCurrent()
	if err := c.Client.Get(t.Context(), key, v); err != nil || v.Spec.DPUStoragePolicyName != "other" || v.Status.Phase != storagev1alpha1.DPUVolumeBound {
		t.Errorf("the cache shows %+v: %v", v, err)
	}
	if err := c.Client.List(t.Context(), list); err != nil || len(list.Items) != 1 {
		t.Errorf("listed %d: %v", len(list.Items), err)
	}
}

// TestMadeAgain: an object that takes the name of another is another one, and is
// stamped by the clock if a reconciler made it.
func TestMadeAgain(t *testing.T) {
	c := NewDPU(t)
	first, second := Volume("v", "gold"), Volume("v", "gold")
	c.Add(first)
	c.Remove(Volume("v", "gold"))
	c.Step(1900 * time.Millisecond)
	if err := c.Client.Create(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	if first.UID != "Volume-v-1" || second.UID != "Volume-v-2" || !second.CreationTimestamp.Time.Equal(Begin.Add(time.Second)) {
		t.Errorf("UIDs %s and %s, made at %s", first.UID, second.UID, second.CreationTimestamp)
	}
	if c.Has(&corev1.PersistentVolume{}, "pv") {
		t.Error("an object that was never made exists")
	}
	c.Recorder.Event(second, corev1.EventTypeNormal, "Made", "again")
	c.Recorder.Event(second, corev1.EventTypeWarning, "Lost", "again")
	if got := c.Reasons(); got != "Made Lost" {
		t.Errorf("events %q", got)
	}
	if got := c.Events(); len(got) != 0 {
		t.Errorf("events again: %q", got)
	}
}
