package framework

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/moor-storage/moor/internal/podvolume"
)

func TestArguments(t *testing.T) {
	raw := func(text string) runtime.Object { return &runtime.Unknown{Raw: []byte(text)} }
	ours := Args{DriverNames: []string{podvolume.DefaultDriver}, Namespace: DefaultNamespace}
	for name, test := range map[string]struct {
		args runtime.Object
		want Args
		err  string
	}{
		"none":          {nil, ours, ""},
		"empty":         {&runtime.Unknown{}, ours, ""},
		"both":          {raw(`{"driverName":"d","namespace":"n"}`), Args{DriverName: "d", DriverNames: []string{"d"}, Namespace: "n"}, ""},
		"several":       {raw(`{"driverNames":["d","e"]}`), Args{DriverNames: []string{"d", "e"}, Namespace: DefaultNamespace}, ""},
		"no names":      {raw(`{"driverNames":[]}`), ours, ""},
		"YAML":          {raw("namespace: storage\n"), Args{DriverNames: ours.DriverNames, Namespace: "storage"}, ""},
		"one and more":  {raw(`{"driverName":"d","driverNames":["e"]}`), Args{}, "driverName d and driverNames [e] are both set"},
		"an empty name": {raw(`{"driverNames":["d",""]}`), Args{}, `"" is not the name of a CSI driver`},
		"not a name":    {raw(`{"driverName":"d,e"}`), Args{}, `"d,e" is not the name of a CSI driver`},
		"unknown field": {raw(`{"drivername_":"d"}`), Args{}, "unknown field"},
		"no arguments":  {&corev1.Pod{}, Args{}, "they are *v1.Pod"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parse(test.args)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("error %v, want %q", err, test.err)
				}
				return
			}
			if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
				t.Error(diff, err)
			}
		})
	}
}
