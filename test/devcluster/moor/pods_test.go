package moor

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moor-storage/moor/test/devcluster"
)

// withPods lists all processes of a bed with pods as volumes, of which none was brought up.
func withPods(t *testing.T, o devcluster.Options) []devcluster.Process {
	t.Helper()
	o.KubeletProfile = devcluster.ProfileStock
	b, err := newBed(fake{o})
	if err != nil {
		t.Fatal(err)
	}
	out := append(processes(b, Kubeconfigs{}), localProcesses(b, "/local")...)
	for _, site := range podSites(b) {
		out = append(out, site.processes("/bin", "/control", map[string]string{"host-1": "/on-host-1", "dpu-1": "/on-dpu-1", "dpu-2": "/on-dpu-2"})...)
	}
	return out
}

func TestPodsRunWhereTheyAreWanted(t *testing.T) {
	for _, c := range []struct {
		options devcluster.Options
		want    []string
	}{
		{devcluster.Options{}, nil},
		{devcluster.Options{Pods: true}, []string{"pod-provisioner in hub", "pod-provisioner-host-1 in host-1"}},
		{devcluster.Options{DPUPods: true}, []string{"pod-provisioner-dpu in hub", "pod-provisioner-dpu-1 in dpu-1"}},
		{devcluster.Options{Pods: true, DPUPods: true}, []string{
			"pod-provisioner in hub", "pod-provisioner-host-1 in host-1", "pod-provisioner-dpu in hub", "pod-provisioner-dpu-1 in dpu-1",
		}},
	} {
		var got []string
		for _, p := range withPods(t, c.options) {
			if strings.HasPrefix(p.Name, "pod-provisioner") {
				got = append(got, p.Name+" in "+p.Machine)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%+v: there are %v, want %v", c.options, got, c.want)
		}
	}
}

// TestPodProvisionerOfADPUIsAPlugin: it is told of its DPU as the vendor's plugin beside it is.
func TestPodProvisionerOfADPUIsAPlugin(t *testing.T) {
	all := map[string][]string{}
	for _, p := range withPods(t, devcluster.Options{Pods: true, DPUPods: true}) {
		all[p.Name] = p.Argv
	}
	provisioner, vendor := all["pod-provisioner-dpu-1"], all["local-vendor-dpu-1"]
	for flag, want := range map[string]string{
		"--kubeconfig": "/on-dpu-1", "--node-name": "dpu-1", "--plugin-name": "pav", "--plugin-root": last(vendor, "--plugin-root"),
		"--snap-socket": last(vendor, "--snap-socket"), "--volume-namespace": last(all["snap-controller"], "--namespace"),
	} {
		if got := last(provisioner, flag); got == "" || got != want {
			t.Errorf("%s is %q, want %q", flag, got, want)
		}
	}
	for _, arg := range all["pod-provisioner-host-1"] {
		if strings.HasPrefix(arg, "--plugin-") || strings.HasPrefix(arg, "--snap-") {
			t.Errorf("on a host it has %s", arg)
		}
	}
}

// TestNoTwoProcessesOfAMachineShareAPort: all that a bed can have runs at once.
func TestNoTwoProcessesOfAMachineShareAPort(t *testing.T) {
	taken := map[string]string{}
	for _, p := range withPods(t, devcluster.Options{Pods: true, DPUPods: true, LocalDriver: true, TwoDPUClusters: true}) {
		for _, flag := range []string{"--metrics-bind-address", "--health-probe-bind-address", "--webhook-port", "--bind-address", "--target-listen"} {
			port := strings.TrimPrefix(last(p.Argv, flag), ":")
			if port == "" || strings.HasPrefix(port, "unix:") {
				continue
			}
			at := p.Machine + ":" + port
			if other, found := taken[at]; found {
				t.Errorf("%s and %s have %s", p.Name, other, at)
			}
			taken[at] = p.Name
		}
	}
	if len(taken) < 20 {
		t.Errorf("found %d ports: the search is wrong", len(taken))
	}
}

// TestVendorBesideOtherDrivers: a kubelet of the DPU may have made the CSINode before.
func TestVendorBesideOtherDrivers(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "dpu-1", UID: "node"}}
	byKubelet := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "dpu-1", UID: "node"}}
	for name, known := range map[string]*storagev1.CSINode{
		"none": {},
		"of a kubelet": {
			ObjectMeta: metav1.ObjectMeta{OwnerReferences: byKubelet},
			Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: "other", NodeID: "dpu-1"}}},
		},
	} {
		had := len(known.Spec.Drivers)
		for range 2 {
			withVendor(known, node)
		}
		if !registered(known, VendorDriver) || len(known.Spec.Drivers) != had+1 {
			t.Errorf("%s: the drivers are %v", name, known.Spec.Drivers)
		}
		if len(known.OwnerReferences) != 1 || known.OwnerReferences[0].UID != node.UID {
			t.Errorf("%s: it is owned by %v", name, known.OwnerReferences)
		}
	}
}
