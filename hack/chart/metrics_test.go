package main

import (
	"strings"
	"testing"
)

// programs are those that ask who reads their metrics.
var programs = map[string]bool{"snap-csi-plugin": true, "snap-host-controller": true, "snap-controller": true, "snap-node-driver": true}

// TestMetrics: with metrics.secure false each program that can do both serves HTTP, and
// its probes ask by what it serves; one that cannot has no flag that it does not know.
func TestMetrics(t *testing.T) {
	root := rootOf(t)
	cases, err := valuesOf(root)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, secure := range []bool{true, false} {
		for name, values := range cases {
			values["metrics"] = map[string]any{"secure": secure}
			out, err := render(root, "r", values, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range containersOf(objects(t, out)) {
				program := program(c.spec)
				seen[program] = true
				if flag := strings.Contains(strings.Join(texts(c.spec["args"]), " "), "--insecure-metrics"); flag != (programs[program] && !secure) {
					t.Errorf("%s: %s of %s with metrics.secure %v: --insecure-metrics is there: %v", name, c.name, c.workload, secure, flag)
				}
				for _, kind := range []string{"livenessProbe", "readinessProbe"} {
					probe, _ := c.spec[kind].(map[string]any)
					get, _ := probe["httpGet"].(map[string]any)
					if want := secure && program == "snap-csi-plugin" && get != nil; (get["scheme"] == "HTTPS") != want {
						t.Errorf("%s: %s of %s with metrics.secure %v asks by %v", name, kind, c.workload, secure, get["scheme"])
					}
				}
			}
		}
	}
	for program := range programs {
		if !seen[program] {
			t.Errorf("no release has %s", program)
		}
	}
}
