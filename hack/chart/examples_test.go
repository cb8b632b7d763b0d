package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chartutil"
	"sigs.k8s.io/yaml"
)

// TestExamples renders the chart with the values of deploy/examples/dpf, as DPF merges them
// of template and configuration, and as a person gives them to helm.
func TestExamples(t *testing.T) {
	root := rootOf(t)
	templates, configurations := map[string]map[string]any{}, map[string]map[string]any{}
	services, err := filepath.Glob(filepath.Join(root, "deploy/examples/dpf/services/*.yaml"))
	if err != nil || len(services) == 0 {
		t.Fatalf("%d services, %v", len(services), err)
	}
	for _, file := range services {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for key, o := range objects(t, string(raw)) {
			spec := o["spec"].(map[string]any)
			if strings.HasPrefix(key, "DPUServiceTemplate/") {
				templates[spec["deploymentServiceName"].(string)] = spec
			} else {
				configurations[strings.TrimPrefix(key, "DPUServiceConfiguration/")] = spec
			}
		}
	}
	rendered := 0
	for name, c := range configurations {
		template := templates[c["deploymentServiceName"].(string)]
		source := chartutil.Values(template)
		if chart, err := source.PathValue("helmChart.source.chart"); err != nil || chart != "moor" {
			continue
		}
		rendered++
		t.Run(name, func(t *testing.T) { checkService(t, root, name, source, c) })
	}
	if rendered < 4 {
		t.Errorf("%d services of Moor's chart", rendered)
	}
	plain, err := filepath.Glob(filepath.Join(root, "deploy/examples/dpf/values/*.yaml"))
	if err != nil || len(plain) == 0 {
		t.Fatalf("%d values, %v", len(plain), err)
	}
	for _, file := range plain {
		values, err := chartutil.ReadValuesFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := render(root, "r", values, nil); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// checkService renders a service with what DPF's operator gives it, and compares what it
// says of privileged pods with what its pods are.
func checkService(t *testing.T, root, name string, template chartutil.Values, configuration map[string]any) {
	values, err := template.Table("helmChart.values")
	if err != nil {
		t.Fatal(err)
	}
	given := chartutil.Values(configuration)
	if own, err := given.Table("serviceConfiguration.helmChart.values"); err == nil {
		values = chartutil.CoalesceTables(own, values) // the configuration wins
	}
	operator := map[string]any{
		"labels":       map[string]any{"svc.dpu.nvidia.com/service": name},
		"nodeSelector": map[string]any{"nodeSelectorTerms": []any{map[string]any{"matchExpressions": []any{map[string]any{"key": "a", "operator": "Exists"}}}}},
	}
	if own, err := given.Table("serviceConfiguration.serviceDaemonSet"); err == nil {
		operator = chartutil.CoalesceTables(operator, own)
	}
	values["serviceDaemonSet"] = operator
	out, err := render(root, name, values, nil)
	if err != nil {
		t.Fatal(err)
	}
	daemons := 0
	for key, o := range objects(t, out) {
		if strings.HasPrefix(key, "DaemonSet/") {
			daemons++
			if text, _ := yaml.Marshal(o); !strings.Contains(string(text), "svc.dpu.nvidia.com/service: "+name) || !strings.Contains(string(text), "nodeAffinity") {
				t.Errorf("%s lacks what DPF's operator gives:\n%s", key, text)
			}
		}
	}
	if daemons != 1 {
		t.Errorf("%d DaemonSets, DPF fills serviceDaemonSet for one", daemons)
	}
	if said, err := template.PathValue("security.privileged"); err == nil && fmt.Sprint(said) != fmt.Sprint(strings.Contains(out, "privileged: true")) {
		t.Errorf("security.privileged is %v, and the pods are not so", said)
	}
}
