package state

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/placement"
)

func newStore(objects ...any) (*Store, *clocktesting.FakeClock) {
	c := clocktesting.NewFakeClock(time.Unix(1000, 0))
	s := New([]string{driver, second}, c)
	for _, o := range objects {
		s.Set(o)
	}
	return s, c
}

// places are where the index says that the pod's volumes are warm.
func places(s *Store, p *corev1.Pod) []string {
	var out []string
	for _, v := range s.Index().Volumes(p) {
		for _, c := range v.Copies {
			out = append(out, fmt.Sprintf("%s on %s %s", v.ID, c.Node, c.Warmth))
		}
	}
	slices.Sort(out)
	return out
}

func TestVolumesOfPod(t *testing.T) {
	ephemeral := pod()
	ephemeral.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
	unbound := claim("b")
	unbound.Status.Phase = corev1.ClaimPending
	virtiofs := persistentVolume("e")
	virtiofs.Spec.CSI.Driver = second
	foreign := persistentVolume("c")
	foreign.Spec.CSI.Driver = "other"
	elsewhere := claim("d")
	elsewhere.Namespace = "other"
	tokens := pod()
	tokens.Spec.Volumes = []corev1.Volume{{Name: "kube-api-access", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}}}
	s, _ := newStore(claim("a"), persistentVolume("a"), unbound, persistentVolume("b"), claim("c"), foreign, claim("e"), virtiofs,
		elsewhere, persistentVolume("d"), claim("no-volume"), claim("p-scratch"), persistentVolume("p-scratch"))
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want []string
	}{
		"bound":                      {pod("a"), []string{"h-a"}},
		"the second driver's":        {pod("e"), []string{"h-e"}},
		"of both drivers":            {pod("a", "e"), []string{"h-a", "h-e"}},
		"no volumes":                 {pod(), nil},
		"only the account's token":   {tokens, nil},
		"not bound yet":              {pod("b"), nil},
		"another driver's":           {pod("c"), nil},
		"claim of another namespace": {pod("d"), nil},
		"unknown claim":              {pod("x"), nil},
		"unknown volume":             {pod("no-volume"), nil},
		"named twice":                {pod("a", "a"), []string{"h-a"}},
		"ours among others":          {pod("x", "c", "a", "b"), []string{"h-a"}},
		"generic ephemeral":          {ephemeral, []string{"h-p-scratch"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, v := range s.Index().Volumes(test.pod) {
				got = append(got, v.ID)
			}
			if diff := gocmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestStoreFollowsChanges(t *testing.T) {
	s, _ := newStore(claim("a"), persistentVolume("a"), storageNode("n1", 4), attachment("at1", "a", "n1", true), attachment("at2", "a", "n2", true))
	p := pod("a")
	steps := []struct {
		what string
		do   func()
		want []string
	}{
		{"at first", func() {}, []string{"h-a on n1 attached", "h-a on n2 attached"}},
		{"one turns cold", func() { s.Set(attachment("at2", "a", "n2", false)) }, []string{"h-a on n1 attached"}},
		{"and warm again", func() { s.Set(attachment("at2", "a", "n2", true)) }, []string{"h-a on n1 attached", "h-a on n2 attached"}},
		{"one comes back on another node", func() { s.Set(attachment("at1", "a", "n3", true)) }, []string{"h-a on n2 attached", "h-a on n3 attached"}},
		{"one comes back for another volume", func() { s.Set(attachment("at1", "z", "n3", true)) }, []string{"h-a on n2 attached"}},
		{"a deletion that was missed", func() {
			s.Remove(cache.DeletedFinalStateUnknown{Key: "x", Obj: attachment("at2", "a", "n2", true)})
		}, nil},
		{"a deletion of which nothing is known", func() { s.Remove(cache.DeletedFinalStateUnknown{Key: "x"}) }, nil},
		{"deleted twice", func() { s.Remove(attachment("at2", "a", "n2", true)) }, nil},
		{"two attachments on one node", func() {
			s.Set(attachment("at3", "a", "n1", true))
			s.Set(attachment("at4", "a", "n1", true))
		}, []string{"h-a on n1 attached", "h-a on n1 attached"}},
		{"the claim goes", func() { s.Remove(claim("a")) }, nil},
		{"the claim returns, its volume goes", func() { s.Set(claim("a")); s.Remove(persistentVolume("a")) }, nil},
		{"the volume returns", func() { s.Set(persistentVolume("a")) }, []string{"h-a on n1 attached", "h-a on n1 attached"}},
	}
	for _, step := range steps {
		step.do()
		if diff := gocmp.Diff(step.want, places(s, p)); diff != "" {
			t.Fatalf("%s: %s", step.what, diff)
		}
	}
	want := Size{Claims: 1, Volumes: 1, WarmVolumes: 2, Nodes: 1}
	if diff := gocmp.Diff(want, s.Index().Size()); diff != "" {
		t.Error(diff)
	}
	s.Remove(storageNode("n1", 4))
	if got := s.Index().Node("n1"); !strings.Contains(got.NoDPU, "no DPUStorageNode") {
		t.Errorf("a node that is gone is known as %+v", got)
	}
}

// An index that a reader holds never changes, whatever comes after it.
func TestIndexIsImmutable(t *testing.T) {
	s, _ := newStore(claim("a"), persistentVolume("a"), storageNode("n1", 4), attachment("at1", "a", "n1", true))
	held := s.Index()
	before := gocmp.Diff(nil, held.Volumes(pod("a"))) + fmt.Sprint(*held.Node("n1"), held.Size())
	s.Set(attachment("at1", "a", "n1", false))
	s.Set(attachment("at2", "a", "n2", true))
	s.Set(storageNode("n1", 0))
	s.Remove(claim("a"))
	if after := gocmp.Diff(nil, held.Volumes(pod("a"))) + fmt.Sprint(*held.Node("n1"), held.Size()); after != before {
		t.Errorf("was %s, is %s", before, after)
	}
	if s.Index() == held {
		t.Error("the index was not swapped")
	}
}

// What changes nothing that counts - a heartbeat, a resync - swaps nothing.
func TestSameIsNotSwapped(t *testing.T) {
	s, _ := newStore(claim("a"), persistentVolume("a"), storageNode("n1", 4), attachment("at1", "a", "n1", true))
	beat := storageNode("n1", 4)
	beat.Status.DPU.Sequence = 77
	lost := lostOn("n2", "b")
	s.Set(lost)
	s.Set(ofVendor("b", "x"))
	held := s.Index()
	for _, o := range []any{claim("a"), persistentVolume("a"), ofVendor("b", "x"), beat, lost, attachment("at1", "a", "n1", true), attachment("at9", "a", "n1", false), "what is this?"} {
		s.Set(o)
		if s.Index() != held {
			t.Errorf("%T swapped the index", o)
		}
	}
	s.Remove(claim("never"))
	if s.Index() != held {
		t.Error("the deletion of what never was swapped the index")
	}
}

// Whatever the order of events, the index is that of the last state.
func TestOrderOfEventsDoesNotMatter(t *testing.T) {
	for round := range uint64(200) {
		r := rand.New(rand.NewPCG(round, 3))
		s, _ := newStore(claim("a"), persistentVolume("a"), claim("b"), persistentVolume("b"))
		last := map[string]*storagev1alpha1.DPUVolumeAttachment{}
		for range 60 {
			name := fmt.Sprint("at", r.IntN(5))
			a := attachment(name, []string{"a", "b"}[r.IntN(2)], fmt.Sprint("n", r.IntN(3)), r.IntN(3) > 0)
			if r.IntN(4) == 0 {
				s.Remove(cmp.Or(last[name], a))
				delete(last, name)
				continue
			}
			s.Set(a)
			last[name] = a
		}
		var want []string
		for _, a := range last {
			if w := warmthOf(a); w != placement.Cold {
				want = append(want, fmt.Sprintf("%s on %s %s", a.Spec.DPUVolumeName, a.Spec.DPUNodeName, w))
			}
		}
		slices.Sort(want)
		if diff := gocmp.Diff(want, places(s, pod("a", "b"))); diff != "" {
			t.Fatalf("round %d: %s", round, diff)
		}
	}
}

// Readers and writers at once; the race detector looks on.
// What opens a node is told once, with the index before and after it.
func TestOpened(t *testing.T) {
	dead, empty, pfs := storageNode("n", 1), storageNode("n", 0), storageNode("n", 1)
	dead.Status.DPU.SNAPReady = false
	pfs.Status.DPU.Functions = pfs.Status.DPU.Functions[:1] // of vf nothing is known
	for name, test := range map[string]struct {
		before, now any
		want        bool
	}{
		"a node comes":               {nil, storageNode("n", 1), true},
		"it is healthy again":        {dead, storageNode("n", 1), true},
		"it is healthy, and full":    {dead, empty, true},
		"a function is free":         {empty, storageNode("n", 1), true},
		"functions are not counted":  {empty, pfs, true},
		"a function is taken":        {storageNode("n", 1), empty, false},
		"it is in trouble":           {storageNode("n", 1), dead, false},
		"the same":                   {storageNode("n", 1), storageNode("n", 1), false},
		"still in trouble":           {dead, dead, false},
		"counted again":              {pfs, storageNode("n", 1), false},
		"a path is back":             {lostOn("n", "a", "b"), lostOn("n", "b"), true},
		"another path is lost":       {lostOn("n", "a"), lostOn("n", "a", "b"), false},
		"a path is back, in trouble": {lostOn("n", "a"), dead, false},
		"a volume is attached":       {attachment("n-a", "a", "n", false), attachment("n-a", "a", "n", true), true},
		"an attachment is cold":      {nil, attachment("n-a", "a", "n", false), false},
		"a volume":                   {nil, persistentVolume("a"), false},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := newStore(test.before)
			var told []Opened
			s.OnOpened(func(o Opened) { told = append(told, o) })
			before := s.Index()
			s.Set(test.now)
			if (len(told) == 1) != test.want {
				t.Fatalf("told %v, want %t", told, test.want)
			}
			if test.want && told[0] != (Opened{Node: "n", Before: before, After: s.Index()}) {
				t.Errorf("told %+v", told[0])
			}
		})
	}
}

func TestReadWhileWritten(t *testing.T) {
	s, _ := newStore(claim("a"), persistentVolume("a"))
	var all sync.WaitGroup
	for w := range 3 {
		all.Go(func() {
			for i := range 500 {
				s.Set(attachment(fmt.Sprint("at", w), "a", fmt.Sprint("n", i%7), i%3 > 0))
				s.Set(storageNode(fmt.Sprint("n", w), int64(i)))
			}
		})
		all.Go(func() {
			for range 500 {
				x := s.Index()
				if got := placement.NewPod(x.Volumes(pod("a"))).Score(x.Node("n1")); got > placement.MaxScore {
					t.Errorf("score %d", got)
				}
			}
		})
	}
	all.Wait()
}

func TestAge(t *testing.T) {
	s, c := newStore()
	if _, ever := s.Age(); ever {
		t.Error("an age before the first answer")
	}
	down := errors.New("connection refused")
	answer := func(context.Context) error { return nil }
	refuse := func(context.Context) error { return down }
	if err := s.Probe(t.Context(), refuse); !errors.Is(err, down) || !strings.Contains(err.Error(), "has not answered yet") {
		t.Errorf("probe of a server that never was there: %v", err)
	}
	if err := s.Probe(t.Context(), answer); err != nil {
		t.Fatal(err)
	}
	c.Step(90 * time.Second)
	if err := s.Probe(t.Context(), refuse); !errors.Is(err, down) || !strings.Contains(err.Error(), "1m30s old") {
		t.Errorf("probe of a lost server: %v", err)
	}
	if age, ever := s.Age(); !ever || age != 90*time.Second {
		t.Errorf("age %s, %v", age, ever)
	}
	if err := s.Probe(t.Context(), answer); err != nil {
		t.Fatal(err)
	}
	if age, _ := s.Age(); age != 0 {
		t.Errorf("age %s after an answer", age)
	}
}
