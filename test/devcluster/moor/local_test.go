package moor

import (
	"slices"
	"strings"
	"testing"

	"github.com/moor-storage/moor/test/devcluster"
)

// TestLocalDriverRunsWhereItsVolumesAre: with its sidecars, on one host, and on no bed that is not to have it.
func TestLocalDriverRunsWhereItsVolumesAre(t *testing.T) {
	for _, on := range []bool{true, false} {
		b, err := newBed(fake{devcluster.Options{LocalDriver: on}})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]bool{}
		for _, p := range localProcesses(b, "/kubeconfig") {
			got[p.Name] = true
			if p.Machine != "host-1" {
				t.Errorf("%s runs in %s", p.Name, p.Machine)
			}
			if p.Name != "local-driver" && (last(p.Argv, "--kubeconfig") != "/kubeconfig" || last(p.Argv, "--csi-address") != localSocket) {
				t.Errorf("%s is told %q", p.Name, p.Argv)
			}
			if strings.HasPrefix(p.Name, "csi-provisioner") && (last(p.Argv, "--capacity-ownerref-level") != "-1" || !slices.Contains(p.Argv, "--strict-topology")) {
				t.Errorf("%s is told %q", p.Name, p.Argv)
			}
		}
		if want := map[bool]int{true: 5}[on]; len(got) != want {
			t.Errorf("it is to be deployed: %t, and there are %v", on, got)
		}
	}
}
