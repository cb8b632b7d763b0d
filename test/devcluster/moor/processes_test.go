package moor

import (
	"slices"
	"strings"
	"testing"

	"github.com/moor-storage/moor/test/devcluster"
)

// TestFunctionsAreKeptWhereTheyAreToBe: before the SNAP service that recovers them, on no other bed.
func TestFunctionsAreKeptWhereTheyAreToBe(t *testing.T) {
	const keeps, serves = "snap-functions-dpu-1", "snap-emulator-dpu-1"
	for _, on := range []bool{false, true} {
		b, err := newBed(fake{devcluster.Options{KubeletProfile: devcluster.ProfileStock, KeepFunctions: on}})
		if err != nil {
			t.Fatal(err)
		}
		var order []string
		args := map[string]string{}
		for _, p := range processes(b, Kubeconfigs{}) {
			if p.Name == keeps || p.Name == serves {
				order = append(order, p.Name)
				args[p.Name] = strings.Join(p.Argv, " ")
			}
		}
		want := []string{serves}
		if on {
			want = []string{keeps, serves}
		}
		if !slices.Equal(order, want) {
			t.Errorf("functions kept is %v: there are %v, want %v", on, order, want)
		}
		if got := strings.Contains(args[serves], "--functions="+functionsSocket); got != on {
			t.Errorf("functions kept is %v: SNAP has %s", on, args[serves])
		}
		if on && !strings.Contains(args[keeps], "--keep-functions") {
			t.Errorf("%s keeps nothing: %s", keeps, args[keeps])
		}
	}
}
