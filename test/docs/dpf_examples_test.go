package docs

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// dpfExamples are the objects of DPF's kinds in deploy/examples/dpf, by name.
type dpfExamples struct {
	templates      map[string]dpuServiceTemplate
	configurations map[string]dpuServiceConfiguration
	deployments    map[string]dpuDeployment // by file
	requests       map[string]dpuServiceCredentialRequest
}

// readExamples decodes all of them strictly; what is of no kind of DPF's is left to decode.
func readExamples(t *testing.T) dpfExamples {
	t.Helper()
	out := dpfExamples{map[string]dpuServiceTemplate{}, map[string]dpuServiceConfiguration{}, map[string]dpuDeployment{}, map[string]dpuServiceCredentialRequest{}}
	for _, pattern := range []string{"*.yaml", "services/*.yaml", "scenarios/*.yaml"} {
		files, err := filepath.Glob(path("deploy", "examples", "dpf", pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, file := range files {
			for document := range strings.SplitSeq(read(t, file), "\n---\n") {
				out.add(t, file, document)
			}
		}
	}
	return out
}

func (e dpfExamples) add(t *testing.T, file, document string) {
	t.Helper()
	if !strings.Contains(document, "apiVersion: svc.dpu.nvidia.com/v1alpha1") {
		decode(t, file, document)
		return
	}
	_, kind, _ := strings.Cut(document, "\nkind: ")
	kind, _, _ = strings.Cut(kind, "\n")
	switch kind {
	case "DPUServiceTemplate":
		o := strictly[dpuServiceTemplate](t, file, document)
		e.templates[o.Name] = o
	case "DPUServiceConfiguration":
		o := strictly[dpuServiceConfiguration](t, file, document)
		e.configurations[o.Name] = o
	case "DPUDeployment":
		e.deployments[filepath.Base(file)] = strictly[dpuDeployment](t, file, document)
	case "DPUServiceCredentialRequest":
		o := strictly[dpuServiceCredentialRequest](t, file, document)
		e.requests[o.Name] = o
	default:
		t.Errorf("%s: kind %s is not known", file, kind)
	}
}

// strictly decodes an object; an unknown or doubled field is an error.
func strictly[T any](t *testing.T, where, document string) T {
	t.Helper()
	var out T
	if err := yaml.UnmarshalStrict([]byte(document), &out); err != nil {
		t.Errorf("%s: %v\n%s", where, err, document)
	}
	return out
}

// scenarios are those that DPF publishes, for hosts of both kinds.
var scenarios = []string{"nvme-hotplug-pf", "nvme-static-pf", "nvme-vf-on-static-pf", "virtiofs-hotplug-pf"}

// TestDPFScenarios: each scenario has a DPUDeployment that keeps DPF's rules, and what it
// names is there.
func TestDPFScenarios(t *testing.T) {
	e := readExamples(t)
	for _, scenario := range scenarios {
		for _, hosts := range []string{"trusted-", "zero-trust-"} {
			d, ok := e.deployments[hosts+scenario+".yaml"]
			if !ok {
				t.Errorf("there is no example of %s%s", hosts, scenario)
				continue
			}
			t.Run(hosts+scenario, func(t *testing.T) { e.checkDeployment(t, d, hosts == "trusted-") })
		}
	}
	if len(e.deployments) != 2*len(scenarios) {
		t.Errorf("%d DPUDeployments for %d scenarios", len(e.deployments), 2*len(scenarios))
	}
}

func (e dpfExamples) checkDeployment(t *testing.T, d dpuDeployment, trusted bool) {
	t.Helper()
	dpus := d.Spec.DPUs
	if len(d.Name) > 20 || dpus.BFB == "" || dpus.Flavor == "" || len(dpus.DPUSets) == 0 {
		t.Errorf("DPF refuses name %q (20 characters), bfb %q, flavor %q, %d dpuSets", d.Name, dpus.BFB, dpus.Flavor, len(dpus.DPUSets))
	}
	if (dpus.NodeEffect.Drain != nil) != trusted || (dpus.NodeEffect.Hold != nil) == trusted || dpus.DPUSetStrategy.Type != map[bool]string{true: "RollingUpdate", false: "OnDelete"}[trusted] {
		t.Errorf("trusted %v: node effect %+v, strategy %s", trusted, dpus.NodeEffect, dpus.DPUSetStrategy.Type)
	}
	for _, set := range dpus.DPUSets {
		for key := range set.DPUAnnotations {
			if strings.Contains(key, "dpu.nvidia.com/") {
				t.Errorf("DPF refuses the annotation %s", key)
			}
		}
	}
	inHostCluster := 0
	for name, s := range d.Spec.Services {
		template, ok := e.templates[s.ServiceTemplate]
		configuration, ok2 := e.configurations[s.ServiceConfiguration]
		if !ok || !ok2 || template.Spec.DeploymentServiceName != name || configuration.Spec.DeploymentServiceName != name || len(name) > 28 {
			t.Errorf("service %s: template %q, configuration %q, which are there: %v, %v, and have to be of that service", name, s.ServiceTemplate, s.ServiceConfiguration, ok, ok2)
		}
		if configuration.Spec.ServiceConfiguration.DeployInCluster {
			inHostCluster++
		}
	}
	if trusted != (inHostCluster == 1) {
		t.Errorf("trusted %v, and %d services run in the host cluster: hosts that are trusted with nothing are not in it", trusted, inHostCluster)
	}
	for _, s := range d.Spec.ServiceChains.Switches {
		for _, port := range s.Ports {
			e.checkPort(t, d, port)
		}
	}
}

func (e dpfExamples) checkPort(t *testing.T, d dpuDeployment, port dpfPort) {
	t.Helper()
	if (port.Service == nil) == (port.ServiceInterface == nil) {
		t.Error("a port is a service or an interface")
		return
	}
	if port.Service == nil {
		return
	}
	for _, i := range e.configurations[d.Spec.Services[port.Service.Name].ServiceConfiguration].Spec.Interfaces {
		if i.Name == port.Service.Interface {
			return
		}
	}
	t.Errorf("service %s has no interface %s", port.Service.Name, port.Service.Interface)
}

// TestDPFServices: templates and configurations keep DPF's rules. From 26.8 on a service on
// DPUs has to say whether it is privileged, and one in the host cluster may not.
func TestDPFServices(t *testing.T) {
	e := readExamples(t)
	for name, c := range e.configurations {
		template, ok := e.templates[c.Spec.DeploymentServiceName]
		if !ok {
			t.Errorf("%s: there is no template of service %s", name, c.Spec.DeploymentServiceName)
			continue
		}
		said := template.Spec.Security != nil && template.Spec.Security.Privileged != nil
		if in := c.Spec.ServiceConfiguration.DeployInCluster; said == in || in && len(c.Spec.Interfaces) > 0 {
			t.Errorf("%s: deployInCluster is %v, security.privileged is said: %v, %d interfaces", name, in, said, len(c.Spec.Interfaces))
		}
		for key := range c.Spec.ServiceConfiguration.ServiceDaemonSet.Labels {
			if strings.Contains(key, "dpu.nvidia.com/") {
				t.Errorf("%s: DPF refuses the label %s", name, key)
			}
		}
		for key := range template.Spec.ResourceRequirements {
			if _, ok := c.Spec.ServiceConfiguration.ServiceDaemonSet.Resources[key]; !ok {
				t.Errorf("%s: the template reserves %s, and no pod asks for it", name, key)
			}
		}
		if source := template.Spec.HelmChart.Source; source.RepoURL == "" || source.Chart == "" || source.Version == "" {
			t.Errorf("%s: the chart is %+v", name, source)
		}
	}
}

// TestDPFCredentials: the requests keep DPF's rules, and their accounts and Secrets are those
// that the values name.
func TestDPFCredentials(t *testing.T) {
	e := readExamples(t)
	values := read(t, path("deploy", "examples", "dpf", "values", "snap-host-controller.yaml")) + read(t, path("deploy", "examples", "dpf", "values", "snap-controller.yaml"))
	chart := read(t, path("deploy", "charts", "moor", "values.yaml"))
	for name, r := range e.requests {
		lasts, err := time.ParseDuration(r.Spec.Duration)
		if err != nil || lasts < 10*time.Minute || r.Spec.Type != "tokenFile" || r.Spec.TargetCluster == nil || len(name) > 63 {
			t.Errorf("%s: duration %s, %v, type %s, cluster %v", name, r.Spec.Duration, err, r.Spec.Type, r.Spec.TargetCluster)
		}
		if !strings.HasPrefix(name, "snap-") {
			continue // a vendor's
		}
		if !strings.Contains(values, ": "+r.Spec.Secret.Name+"\n") {
			t.Errorf("%s: no values name Secret %s", name, r.Spec.Secret.Name)
		}
		if !regexp.MustCompile(`serviceAccount: `+regexp.QuoteMeta(r.Spec.ServiceAccount.Name)+`\n`).MatchString(chart) || r.Spec.ServiceAccount.Namespace != r.Namespace {
			t.Errorf("%s: dpu.configuration gives no rights to %s/%s", name, r.Spec.ServiceAccount.Namespace, r.Spec.ServiceAccount.Name)
		}
	}
	if len(e.requests) != 4 {
		t.Errorf("%d requests, 4 are wanted: of two controllers and two vendors", len(e.requests))
	}
}
