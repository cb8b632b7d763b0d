package kube

import (
	"testing"
	"time"
)

// TestRecent: by UID, until its time and not at it, and nothing is kept beyond that.
func TestRecent(t *testing.T) {
	var r Recent[string]
	now := time.Now()
	want := func(after time.Duration, value string, left time.Duration) {
		t.Helper()
		if v, l := r.Get("uid-a", now.Add(after)); v != value || l != left {
			t.Errorf("after %s: %q for %s, want %q for %s", after, v, l, value, left)
		}
	}
	want(0, "", 0)
	r.Note("uid-a", "one", now, now.Add(10*time.Second))
	want(3*time.Second, "one", 7*time.Second)
	want(10*time.Second, "", 0)
	r.Note("uid-a", "two", now, now.Add(20*time.Second))
	want(10*time.Second, "two", 10*time.Second)
	if v, left := r.Get("uid-b", now); v != "" || left != 0 {
		t.Errorf("another object: %q for %s", v, left)
	}
	r.Note("uid-b", "three", now.Add(20*time.Second), now.Add(30*time.Second))
	if len(r.by) != 1 {
		t.Errorf("%d are kept, want that which is not over", len(r.by))
	}
	r.Forget("uid-b")
	if _, left := r.Get("uid-b", now.Add(20*time.Second)); left != 0 {
		t.Error("what was forgotten is remembered")
	}
}
