package state

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/cache"
)

// TestLostPaths: what a node says of a pod by the lost paths of its DPU, as nodes and
// volumes change.
func TestLostPaths(t *testing.T) {
	const (
		own    = "DPU dpu-n has lost its way to the storage of volume h-a: no path"
		vendor = `DPU dpu-n has lost its way to the storage of vendor "x" (volume h-a: no path)`
	)
	s, _ := newStore(claim("a"), claim("b"), claim("c"), ofVendor("b", "x"), ofVendor("c", "y"), storageNode("n", 4), storageNode("m", 4))
	var told []string
	s.OnOpened(func(o Opened) { told = append(told, o.Node) })
	for _, step := range []struct {
		what    string
		do      func()
		a, b, c string
		opened  []string
	}{
		{"nothing is lost", func() { s.Set(ofVendor("a", "x")) }, "", "", "", nil},
		{"a path is lost", func() { s.Set(lostOn("n", "a")) }, own, vendor, "", nil},
		{"its volume goes", func() { s.Remove(ofVendor("a", "x")) }, "", "", "", []string{"n"}},
		{"and returns", func() { s.Set(ofVendor("a", "x")) }, own, vendor, "", nil},
		{"with another name", func() {
			renamed := ofVendor("a", "x")
			renamed.Name = "pv-other"
			s.Set(renamed)
			s.Remove(cache.DeletedFinalStateUnknown{Key: "pv-a", Obj: ofVendor("a", "x")})
		}, "", vendor, "", nil},
		{"the claim's again, of no vendor", func() { s.Set(persistentVolume("a")) }, own, vendor, "", nil},
		{"the node goes", func() { s.Remove(lostOn("n", "a")) }, unknown.NoDPU, unknown.NoDPU, unknown.NoDPU, nil},
		{"and returns", func() { s.Set(lostOn("n", "a")) }, own, vendor, "", []string{"n"}},
		{"the path is back", func() { s.Set(storageNode("n", 4)) }, "", "", "", []string{"n"}},
	} {
		told = nil
		step.do()
		var got []string
		for _, claim := range []string{"a", "b", "c"} {
			words := ""
			if ranking, ours := s.Index().Rank(pod(claim)); ours {
				words = ranking.Refuse("n").Reason
				if other := ranking.Refuse("m"); other.Refused() {
					t.Errorf("%s: another node says %q", step.what, other.Reason)
				}
			}
			got = append(got, words)
		}
		if diff := cmp.Diff([]string{step.a, step.b, step.c}, got); diff != "" {
			t.Errorf("%s: %s", step.what, diff)
		}
		if diff := cmp.Diff(step.opened, told); diff != "" {
			t.Errorf("%s: opened: %s", step.what, diff)
		}
	}
	if len(s.kin.tellers) > 0 {
		t.Errorf("kept of paths that are back: %v", s.kin.tellers)
	}
}

// Whatever the order of events, paths have the vendors of the last state.
func TestOrderOfLostPathsDoesNotMatter(t *testing.T) {
	claims := []string{"a", "b", "c"}
	for round := range uint64(200) {
		r := rand.New(rand.NewPCG(round, 4))
		s, _ := newStore()
		vendors, lost := map[string]string{}, map[string]map[string]bool{}
		for range 60 {
			c, node := claims[r.IntN(len(claims))], fmt.Sprint("n", r.IntN(3))
			switch r.IntN(4) {
			case 0:
				s.Remove(persistentVolume(c))
				delete(vendors, c)
			case 1:
				vendors[c] = []string{"", "x", "y"}[r.IntN(3)]
				s.Set(ofVendor(c, vendors[c]))
			case 2:
				s.Remove(storageNode(node, 4))
				delete(lost, node)
			case 3:
				lost[node] = map[string]bool{}
				n := storageNode(node, 4)
				for _, c := range claims {
					if r.IntN(2) == 0 {
						lost[node][c] = true
						n.Status.DPU.LostPaths = append(n.Status.DPU.LostPaths, lostOn(node, c).Status.DPU.LostPaths...)
					}
				}
				s.Set(n)
			}
		}
		for node, of := range lost {
			got := map[string]string{}
			for _, p := range paths(s.Index().Node(node).Lost) {
				got[p.Volume] = p.Vendor
			}
			want := map[string]string{}
			for c := range of {
				want["h-"+c] = vendors[c]
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("round %d, %s: %s", round, node, diff)
			}
		}
	}
}
