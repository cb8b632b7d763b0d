package framework

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestArguments(t *testing.T) {
	for name, test := range map[string]struct {
		args runtime.Object
		want Args
		err  string
	}{
		"none":          {nil, Args{DefaultDriverName, DefaultNamespace}, ""},
		"empty":         {&runtime.Unknown{}, Args{DefaultDriverName, DefaultNamespace}, ""},
		"both":          {&runtime.Unknown{Raw: []byte(`{"driverName":"d","namespace":"n"}`)}, Args{"d", "n"}, ""},
		"YAML":          {&runtime.Unknown{Raw: []byte("namespace: storage\n")}, Args{DefaultDriverName, "storage"}, ""},
		"unknown field": {&runtime.Unknown{Raw: []byte(`{"drivername_":"d"}`)}, Args{}, "unknown field"},
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
