package deadmounts

import (
	"errors"
	"maps"
	"testing"
	"testing/synctest"
)

// TestTouch: each mount of the driver is read once for each time that it is asked for, but not
// while an earlier read of it hangs; and nothing is judged by it.
func TestTouch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, hang := newHost(t), make(chan struct{})
		well, broken, hung := k.show("pod-a", "ours", "v1", false), k.show("pod-b", "ours", "v2", true), k.show("pod-c", "ours", "v3", false)
		k.show("pod-a", "theirs", "v4", false)
		k.set(func() { k.broken[broken], k.hung[hung] = errors.New("gone"), hang })
		asks := make(chan struct{})
		go k.Touch(t.Context(), asks)
		touched := func(n int) {
			for range n {
				asks <- struct{}{}
				synctest.Wait()
			}
		}
		touched(5)
		close(hang)
		synctest.Wait()
		k.set(func() { delete(k.hung, hung) })
		touched(2)
		k.set(func() {
			if want := map[string]int{well: 7, broken: 7, hung: 3}; !maps.Equal(k.reads, want) {
				t.Errorf("read are %v, want %v", k.reads, want)
			}
		})
		if got := k.told(); got != "" || k.news() {
			t.Errorf("dead are %q", got)
		}
		if got := k.looks(1); got != "" {
			t.Errorf("after the first look dead are %q", got)
		}
	})
}
