package devcluster

import (
	"reflect"
	"strings"
	"testing"
)

// twoDPUClusters is a bed with two DPU clusters that was never brought up.
func twoDPUClusters(t *testing.T, o Options) *Cluster {
	t.Helper()
	o.TwoDPUClusters = true
	o, err := o.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	return &Cluster{meta: meta{Options: o}}
}

// TestDPUClusters: each DPU is in one, as its kubelet is.
func TestDPUClusters(t *testing.T) {
	c := twoDPUClusters(t, Options{DPUPods: true})
	want := []DPUGroup{{DPUCluster, []string{"dpu-1", "dpu-2"}}, {SecondDPUCluster, []string{"dpu-3", "dpu-4"}}}
	if got := c.DPUClusters(); !reflect.DeepEqual(got, want) || !c.Options().Topology {
		t.Errorf("there are %v, topology %v", got, c.Options().Topology)
	}
	for _, of := range want {
		var kubelets []string
		for _, b := range c.kubeletsOf(of.Cluster) {
			kubelets = append(kubelets, b.name)
		}
		if !reflect.DeepEqual(kubelets, of.DPUs) {
			t.Errorf("the %s cluster has the kubelets of %v", of.Cluster, kubelets)
		}
	}
	if got := bed(t, 3).DPUClusters(); !reflect.DeepEqual(got, []DPUGroup{{DPUCluster, []string{"dpu-1", "dpu-2", "dpu-3"}}}) {
		t.Errorf("a bed without the option has %v", got)
	}
	if _, err := (Options{Nodes: 1, TwoDPUClusters: true}).withDefaults(); err == nil || !strings.Contains(err.Error(), "1 node") {
		t.Errorf("one DPU is in two DPU clusters: %v", err)
	}
}
