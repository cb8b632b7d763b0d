package pods

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	pavv1alpha1 "github.com/moor-storage/moor/api/pav/v1alpha1"
)

// example reads one of PaV's examples, as JSON.
func example(t testing.TB, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	out, err := yaml.YAMLToJSON(content)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

var examples = []string{"1-hello-world", "2-google-cloud-storage", "3-transparent-encryption"}

// TestExamples: PaV's own examples are taken as they are.
func TestExamples(t *testing.T) {
	for _, name := range examples {
		if errs := Check(example(t, name)); len(errs) > 0 {
			t.Errorf("%s: %v", name, errs)
		}
	}
}

// good is the spec that each bad one differs from in one place.
const good = `{"provisioningModes": ["Dynamic", "Static"],
 "volumeValidation": {"volumeModes": ["Filesystem"], "accessModes": ["ReadWriteOnce"], "minCapacity": "1Mi", "maxCapacity": 1073741824},
 "volumeCreation": {"handle": "h-{{ defaultHandle }}", "capacity": "{{ requestedMinCapacity }}", "podTemplate": {"spec": {"containers": [{"name": "c", "image": "i"}]}}},
 "volumeDeletion": {"podTemplate": {"metadata": {"namespace": "{{ pvc.metadata.namespace }}"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}},
 "volumeStaging": {"podTemplate": {"spec": {"containers": [{"name": "c", "image": "i", "args": ["{{ handle | tobash }}"]}]}}, "timeout": "1m", "nodeSelector": {"a": "b"}},
 "volumeUnstaging": {"podTemplate": "{% set yaml = true %}spec: {containers: [{name: c, image: i}]}"},
 "volumeRevocation": {"podTemplate": {"spec": {"containers": [{"name": "c", "image": "i", "args": ["{{ handle }}", "{{ attachment.uid }}", "{{ attachment.epoch }}", "{{ node.metadata.name }}"]}]}}, "timeout": "30s"}}`

// changed is the good object with the value of one field replaced; nil: without it.
func changed(t testing.TB, path string, v any) []byte {
	t.Helper()
	var spec map[string]any
	if err := json.Unmarshal([]byte(good), &spec); err != nil {
		t.Fatal(err)
	}
	at := spec
	keys := strings.Split(path, ".")
	for _, k := range keys[:len(keys)-1] {
		next, ok := at[k].(map[string]any)
		if !ok {
			next = map[string]any{}
			at[k] = next
		}
		at = next
	}
	if last := keys[len(keys)-1]; v == nil {
		delete(at, last)
	} else {
		at[last] = v
	}
	out, err := json.Marshal(map[string]any{"apiVersion": "pav.albertofaria.github.io/v1alpha1", "kind": "PavProvisioner", "metadata": map[string]any{"name": "p"}, "spec": spec})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestBadObjects: each mistake is told with the path of its field.
func TestBadObjects(t *testing.T) {
	list := func(all ...any) []any { return append([]any{}, all...) }
	spec := func(pod map[string]any) map[string]any { return map[string]any{"spec": pod} }
	container := func(more map[string]any) map[string]any {
		c := map[string]any{"name": "c", "image": "i"}
		for k, v := range more {
			c[k] = v
		}
		return spec(map[string]any{"containers": list(c)})
	}
	if errs := Check(changed(t, "volumeStaging.timeout", "2m")); len(errs) > 0 {
		t.Fatalf("the good object: %v", errs)
	}
	for name, c := range map[string]struct {
		path  string
		value any
		want  string
	}{
		"no modes":                        {"provisioningModes", nil, "spec.provisioningModes: Required"},
		"no mode":                         {"provisioningModes", list(), "spec.provisioningModes: Required"},
		"unknown mode":                    {"provisioningModes", list("Dynamic", "Magic"), `spec.provisioningModes[1]: Unsupported value: "Magic"`},
		"modes of another type":           {"provisioningModes", "Dynamic", "spec.provisioningModes: Invalid"},
		"unknown part":                    {"volumeExpansion", map[string]any{}, "spec.volumeExpansion: Forbidden"},
		"misspelled part":                 {"volumestaging", map[string]any{}, "spec.volumestaging: Forbidden"},
		"unknown field of validation":     {"volumeValidation.volumeMode", "Block", "spec.volumeValidation.volumeMode: Forbidden"},
		"unknown field of creation":       {"volumeCreation.size", "1", "spec.volumeCreation.size: Forbidden"},
		"unknown field of deletion":       {"volumeDeletion.handle", "1", "spec.volumeDeletion.handle: Forbidden"},
		"unknown field of staging":        {"volumeStaging.ready", true, "spec.volumeStaging.ready: Forbidden"},
		"unknown field of unstaging":      {"volumeUnstaging.nodeSelector", map[string]any{}, "spec.volumeUnstaging.nodeSelector: Forbidden"},
		"unknown field of revocation":     {"volumeRevocation.nodeSelector", map[string]any{}, "spec.volumeRevocation.nodeSelector: Forbidden"},
		"revocation without a pod":        {"volumeRevocation", map[string]any{"timeout": "1m"}, "spec.volumeRevocation.podTemplate: Required"},
		"revocation of another type":      {"volumeRevocation", "yes", "spec.volumeRevocation: Invalid"},
		"revocation without containers":   {"volumeRevocation.podTemplate", spec(map[string]any{"hostNetwork": true}), "spec.volumeRevocation.podTemplate.spec.containers: Required"},
		"revocation that does not end":    {"volumeRevocation.podTemplate", container(map[string]any{"args": list("{{ handle")}), "spec.volumeRevocation.podTemplate.spec.containers[0].args[0]: Invalid"},
		"revocation within no time":       {"volumeRevocation.timeout", "-1s", "spec.volumeRevocation.timeout: Invalid"},
		"revocation within some time":     {"volumeRevocation.timeout", "later", "spec.volumeRevocation.timeout: Invalid"},
		"creation of static volumes":      {"provisioningModes", list("Static"), "spec.volumeCreation: Forbidden"},
		"deletion of static volumes":      {"provisioningModes", list("Static"), "spec.volumeDeletion: Forbidden"},
		"unknown volume mode":             {"volumeValidation.volumeModes", list("Filesystem", "Tape"), "spec.volumeValidation.volumeModes: Invalid"},
		"no volume mode":                  {"volumeValidation.volumeModes", list(), "spec.volumeValidation.volumeModes: Invalid"},
		"volume modes of another type":    {"volumeValidation.volumeModes", "Block", "spec.volumeValidation.volumeModes: Invalid"},
		"one that is a template, one bad": {"volumeValidation.volumeModes", list("{{ params.mode }}", "Tape"), "spec.volumeValidation.volumeModes[1]: Invalid"},
		"unknown access mode":             {"volumeValidation.accessModes", list("ReadWriteTwice"), "spec.volumeValidation.accessModes: Invalid"},
		"no access mode":                  {"volumeValidation.accessModes", list(), "spec.volumeValidation.accessModes: Invalid"},
		"capacity of nothing":             {"volumeValidation.minCapacity", 0, "spec.volumeValidation.minCapacity: Invalid"},
		"capacity below nothing":          {"volumeValidation.minCapacity", "-1Gi", "spec.volumeValidation.minCapacity: Invalid"},
		"capacity that is no quantity":    {"volumeValidation.maxCapacity", "10 GB", "spec.volumeValidation.maxCapacity: Invalid"},
		"capacity of another type":        {"volumeCreation.capacity", list("1Gi"), "spec.volumeCreation.capacity: Invalid"},
		"capacity that is not whole":      {"volumeCreation.capacity", 1.5, "spec.volumeCreation.capacity: Invalid"},
		"capacity that is a truth":        {"volumeCreation.capacity", true, "spec.volumeCreation.capacity: Invalid"},
		"capacity beyond 8Ei":             {"volumeCreation.capacity", "9Ei", "spec.volumeCreation.capacity: Invalid"},
		"least above most":                {"volumeValidation.minCapacity", "2Gi", "spec.volumeValidation.minCapacity: Invalid"},
		"empty handle":                    {"volumeCreation.handle", "", "spec.volumeCreation.handle: Invalid"},
		"handle of another type":          {"volumeCreation.handle", 3, "spec.volumeCreation.handle: Invalid"},
		"nothing says how large":          {"volumeCreation", map[string]any{"handle": "h"}, "spec.volumeCreation.capacity: Required"},
		"no staging":                      {"volumeStaging", map[string]any{}, "spec.volumeStaging.podTemplate: Required"},
		"timeout of nothing":              {"volumeStaging.timeout", "0s", "spec.volumeStaging.timeout: Invalid"},
		"timeout that is none":            {"volumeCreation.timeout", "soon", "spec.volumeCreation.timeout: Invalid"},
		"pod template of another type":    {"volumeStaging.podTemplate", list(), "spec.volumeStaging.podTemplate: Invalid"},
		"pod template that is a text":     {"volumeStaging.podTemplate", "spec: {}", "spec.volumeStaging.podTemplate: Invalid"},
		"pod template with a status":      {"volumeStaging.podTemplate", map[string]any{"spec": map[string]any{}, "status": map[string]any{}}, "spec.volumeStaging.podTemplate.status: Forbidden"},
		"pod template without a spec":     {"volumeStaging.podTemplate", map[string]any{"metadata": map[string]any{}}, "spec.volumeStaging.podTemplate.spec: Required"},
		"pod without containers":          {"volumeStaging.podTemplate", spec(map[string]any{"restartPolicy": "Never"}), "spec.volumeStaging.podTemplate.spec.containers: Required"},
		"unknown field of a container":    {"volumeStaging.podTemplate", container(map[string]any{"imagee": "x"}), `spec.volumeStaging.podTemplate: Invalid value: is no pod template: unknown field "spec.containers[0].imagee"`},
		"field of a container, mistyped":  {"volumeStaging.podTemplate", container(map[string]any{"args": "x"}), "spec.volumeStaging.podTemplate: Invalid"},
		"template that does not end":      {"volumeCreation.capacity", "{{ requestedMinCapacity", "spec.volumeCreation.capacity: Invalid"},
		"template that loads another":     {"volumeStaging.podTemplate", container(map[string]any{"args": list("a", "{% include 'x' %}")}), "spec.volumeStaging.podTemplate.spec.containers[0].args[1]: Invalid"},
		"template with an unknown filter": {"volumeDeletion.podTemplate", container(map[string]any{"args": list("{{ 1 | b64encode }}")}), "spec.volumeDeletion.podTemplate.spec.containers[0].args[0]: Invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, e := range Check(changed(t, c.path, c.value)) {
				got = append(got, e.Error())
			}
			if !slices.ContainsFunc(got, func(e string) bool { return strings.HasPrefix(e, c.want) }) {
				t.Errorf("%q, want one that begins with %q", got, c.want)
			}
		})
	}
}

func TestNoObject(t *testing.T) {
	for _, object := range []string{"", "null", "[]", "{", `{"spec": 3}`, `{"spec": null}`} {
		if errs := Check([]byte(object)); len(errs) == 0 {
			t.Errorf("%q is taken", object)
		}
	}
}

// compiled is the good object, changed in one place, or as it is.
func compiled(t testing.TB, path string, v any) *Provisioner {
	t.Helper()
	return compiledOf(t, changed(t, path, v))
}

func compiledOf(t testing.TB, object []byte) *Provisioner {
	t.Helper()
	var p pavv1alpha1.PavProvisioner
	if err := json.Unmarshal(object, &p); err != nil {
		t.Fatal(err)
	}
	out, errs := Compile(&p)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return out
}

func TestWhatIsSaidOfPhases(t *testing.T) {
	p := compiled(t, "volumeStaging.timeout", metav1.Duration{Duration: 90 * time.Second})
	if p.Name() != "p" || !p.Provides(pavv1alpha1.Dynamic) || compiled(t, "provisioningModes", []string{"Dynamic"}).Provides(pavv1alpha1.Static) {
		t.Errorf("%+v", p)
	}
	if p.Timeout(Staging) != 90*time.Second || p.Timeout(Unstaging) != DefaultTimeout {
		t.Errorf("timeouts %v and %v", p.Timeout(Staging), p.Timeout(Unstaging))
	}
	for _, c := range []struct {
		labels map[string]string
		want   bool
	}{{map[string]string{"a": "b", "c": "d"}, true}, {map[string]string{"a": "c"}, false}, {nil, false}} {
		if p.StagesOn(c.labels) != c.want {
			t.Errorf("a node with %v: want %v", c.labels, c.want)
		}
	}
}

// FuzzCheck: no object makes it panic.
func FuzzCheck(f *testing.F) {
	f.Add(changed(f, "volumeStaging.timeout", "1m"))
	for _, name := range examples {
		f.Add(example(f, name))
	}
	f.Fuzz(func(_ *testing.T, object []byte) { Check(object) })
}
