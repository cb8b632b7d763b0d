package framework

import (
	"testing"

	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/moor-storage/moor/pkg/scheduler/state/statetest"
)

func logger(t *testing.T) klog.Logger { return testr.New(t) }

// A pod that was refused is tried again when a node that refused it can serve
// it, and by nothing else.
func TestWhenARefusedPodIsTriedAgain(t *testing.T) {
	for name, test := range map[string]struct {
		claims []string
		change func(*statetest.Cluster)
		want   bool
	}{
		"the DPU is alive again":           {[]string{"a"}, func(c *statetest.Cluster) { c.Node("dead", 1) }, true},
		"a function is free":               {[]string{"a"}, func(c *statetest.Cluster) { c.Node("full", 1) }, true},
		"a node comes":                     {[]string{"a"}, func(c *statetest.Cluster) { c.Node("new", 1) }, true},
		"the volume has its function":      {[]string{"a"}, func(c *statetest.Cluster) { c.Attachment("a", "full", statetest.PreEmulated) }, true},
		"another volume has its function":  {[]string{"a"}, func(c *statetest.Cluster) { c.Attachment("b", "full", statetest.PreEmulated) }, false},
		"the storage is attached":          {[]string{"a"}, func(c *statetest.Cluster) { c.Attachment("a", "full", statetest.StorageAttached) }, false},
		"one function, and two are needed": {[]string{"a", "b"}, func(c *statetest.Cluster) { c.Node("full", 1) }, false},
		"another node has more functions":  {[]string{"a"}, func(c *statetest.Cluster) { c.Node("n1", 9) }, false},
		"nothing that counts":              {[]string{"a"}, func(c *statetest.Cluster) { c.Node("n1", 4) }, false},
		"a path is back":                   {[]string{"x"}, func(c *statetest.Cluster) { c.Node("lost", 4) }, true},
		"a path of its vendor is back":     {[]string{"y"}, func(c *statetest.Cluster) { c.Node("lost", 4) }, true},
		"one is back, another is lost":     {[]string{"y"}, func(c *statetest.Cluster) { c.Lost("lost", "y") }, false},
		"a path of another vendor is back": {[]string{"a"}, func(c *statetest.Cluster) { c.Node("lost", 4) }, false},
		"a node gets worse":                {[]string{"a"}, func(c *statetest.Cluster) { c.Dead("n1") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := statetest.New().Volume("a").Volume("b").VolumeOf("x", "v").VolumeOf("y", "v").Node("n1", 4).Node("full", 0).Dead("dead").Lost("lost", "x")
			b := newBench(c, "n1", "full", "dead", "lost", "new")
			b.full["n1"], b.full["lost"] = true, true
			p := pod(test.claims...)
			got := b.schedule(t, p)
			if len(got.Nodes) > 0 {
				t.Fatal(got.Nodes)
			}
			b.PostFilter(t.Context(), got.cycles, p, nil)
			test.change(c)
			if due := b.refused.Take(); (len(due) == 1) != test.want {
				t.Errorf("due: %v, want %v", due, test.want)
			}
		})
	}
}

// A node that opens between the moment the index is taken and the end of the
// cycle is not missed.
func TestOpenedDuringTheCycle(t *testing.T) {
	c := statetest.New().Volume("a").Dead("dead")
	b := newBench(c, "dead")
	p := pod("a")
	begun := b.schedule(t, p)
	c.Node("dead", 4)
	b.PostFilter(t.Context(), begun.cycles, p, nil)
	if due := b.refused.Take(); len(due) != 1 {
		t.Errorf("due: %v", due)
	}
}

func TestForgottenPods(t *testing.T) {
	for name, forget := range map[string]func(*bench, *corev1.Pod, attempt){
		"it has a node": func(b *bench, p *corev1.Pod, _ attempt) {
			placed := p.DeepCopy()
			placed.Spec.NodeName = "n1"
			ended(b.refused).OnUpdate(p, placed)
		},
		"it is deleted": func(b *bench, p *corev1.Pod, _ attempt) { ended(b.refused).OnDelete(p) },
		"its deletion was missed": func(b *bench, p *corev1.Pod, _ attempt) {
			ended(b.refused).OnDelete(cache.DeletedFinalStateUnknown{Obj: p})
		},
		"it waits for something else": func(b *bench, p *corev1.Pod, a attempt) { b.PostFilter(t.Context(), a.cycles, p, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(statetest.New().Volume("a").Node("n1", 4), "n1")
			b.full["n1"] = true
			p := pod("a")
			a := b.schedule(t, p)
			if b.refused.Len() != 1 {
				t.Fatalf("%d pods wait while one is being placed", b.refused.Len())
			}
			ended(b.refused).OnUpdate(p, p)
			if b.refused.Len() != 1 {
				t.Fatal("a pod without a node is forgotten")
			}
			forget(b, p, a)
			if b.refused.Len() != 0 {
				t.Errorf("%d pods wait", b.refused.Len())
			}
		})
	}
	b := newBench(every(), everyNode...)
	b.schedule(t, pod("unknown"))
	if b.refused.Len() != 0 {
		t.Error("a pod that is none of the plugin's waits")
	}
}
