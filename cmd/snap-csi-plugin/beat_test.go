package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	nodecsi "github.com/moor-storage/moor/pkg/node/csi"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// TestStorageOfDPU: the storage is as good as what was last heard of the DPU.
func TestStorageOfDPU(t *testing.T) {
	limit, err := nodecsi.NewLimit([]string{"hotplug"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	dpu := newDPUView(limit)
	node := &moorv1alpha1.DPUStorageNode{}
	says := func(words string) {
		t.Helper()
		err := dpu.storage(t.Context())
		if got := err == nil; got != (words == "") || err != nil && !strings.Contains(err.Error(), words) {
			t.Errorf("storage: %v, want %q", err, words)
		}
	}
	says("nothing is known")
	dpu.observe(node)
	says("nothing is known")
	node.Status.Conditions = []metav1.Condition{{Type: moorv1alpha1.ConditionReady, Status: metav1.ConditionTrue}}
	node.Status.DPU = &moorv1alpha1.DPUState{Functions: []moorv1alpha1.FunctionCount{{Type: "hotplug", Total: 3}}}
	dpu.observe(node)
	says("")
	if n, err := limit.Count(); n != 3 || err != nil {
		t.Errorf("%d functions, %v", n, err)
	}
	node.Status.Conditions[0].Status, node.Status.Conditions[0].Message = metav1.ConditionFalse, "SNAP does not answer"
	dpu.observe(node)
	says("SNAP does not answer")
}

// TestPlaceOfDPU: the kubelet is told of the driver once it is known where the
// DPU is, and hears the same however often it asks.
func TestPlaceOfDPU(t *testing.T) {
	dpu := newDPUView(&nodecsi.Limit{})
	node := &moorv1alpha1.DPUStorageNode{}
	dpu.observe(node)
	if _, err := dpu.topology(); !errors.Is(err, provisioner.ErrUnavailable) {
		t.Errorf("nothing is known: %v", err)
	}
	select {
	case <-dpu.placed:
		t.Error("placed before anything was known")
	default:
	}
	for _, rack := range []string{"1", "2"} {
		node = &moorv1alpha1.DPUStorageNode{Status: moorv1alpha1.DPUStorageNodeStatus{Topology: map[string]string{"rack": rack}}}
		dpu.observe(node)
		<-dpu.placed
		if got, err := dpu.topology(); err != nil || got["rack"] != "1" {
			t.Errorf("got %v, %v", got, err)
		}
	}
}

// TestReadsWhatIsOld: what a host knows of its DPU is read when it is asked for, and
// once for all that ask within a while; if that fails, what was known stays.
func TestReadsWhatIsOld(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(time.Unix(1e9, 0))
	node, failure, reads := &moorv1alpha1.DPUStorageNode{}, error(nil), 0
	dpu := newDPUView(&nodecsi.Limit{})
	dpu.clock = now
	dpu.read = func(context.Context) (*moorv1alpha1.DPUStorageNode, error) { reads++; return node, failure }
	is := func(status metav1.ConditionStatus) {
		node.Status.Conditions = []metav1.Condition{{Type: moorv1alpha1.ConditionReady, Status: status}}
	}
	wait := func(d time.Duration) { now.SetTime(now.Now().Add(d)) }
	is(metav1.ConditionTrue)
	for range 3 {
		if err := dpu.storage(t.Context()); err != nil {
			t.Error(err)
		}
	}
	is(metav1.ConditionFalse)
	if err := dpu.storage(t.Context()); err != nil || reads != 1 {
		t.Errorf("within a while: %v, %d reads", err, reads)
	}
	wait(viewAge)
	failure = errors.New("no route")
	if err := dpu.storage(t.Context()); err != nil || reads != 2 {
		t.Errorf("what was known, and could not be read: %v, %d reads", err, reads)
	}
	wait(viewAge)
	failure = nil
	if err := dpu.storage(t.Context()); err == nil || reads != 3 {
		t.Errorf("does not serve: %v, %d reads", err, reads)
	}
	if _, err := dpu.functions(t.Context()); err != nil || reads != 3 {
		t.Errorf("%v, %d reads", err, reads)
	}
}

// TestAwaitPlace: it reads until the place is known.
func TestAwaitPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node, reads := &moorv1alpha1.DPUStorageNode{}, 0
		dpu := newDPUView(&nodecsi.Limit{})
		dpu.read = func(context.Context) (*moorv1alpha1.DPUStorageNode, error) {
			if reads++; reads == 3 {
				node.Status.Topology = map[string]string{"rack": "1"}
			}
			return node, nil
		}
		if !dpu.awaitPlace(t.Context()) || reads != 3 {
			t.Errorf("after %d reads", reads)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if newDPUView(&nodecsi.Limit{}).awaitPlace(ctx) {
			t.Error("a place is known of no DPU")
		}
	})
}
