package docs

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// schema is short for what the CRDs are made of.
type schema = apiextensionsv1.JSONSchemaProps

// definitions are the CRDs of both clusters by kind, with the clusters that
// serve each.
func definitions(t *testing.T) (map[string]*apiextensionsv1.CustomResourceDefinition, map[string][]string) {
	t.Helper()
	crds, clusters := map[string]*apiextensionsv1.CustomResourceDefinition{}, map[string][]string{}
	for _, cluster := range []string{"host", "dpu", "pav"} {
		files, err := filepath.Glob(path("crds", cluster, "*.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			crd := &apiextensionsv1.CustomResourceDefinition{}
			if err := yaml.UnmarshalStrict([]byte(read(t, file)), crd); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			kind := crd.Spec.Names.Kind
			crds[kind] = crd
			clusters[kind] = append(clusters[kind], map[string]string{"host": "host cluster", "dpu": "DPU cluster", "pav": "any cluster"}[cluster])
		}
	}
	return crds, clusters
}

func kindPage(kind string) string { return path("docs", "kinds", strings.ToLower(kind)+".md") }

// TestKinds holds the page of every kind to its CRD.
func TestKinds(t *testing.T) {
	crds, clusters := definitions(t)
	if len(crds) != 18 {
		t.Errorf("%d kinds, want 18", len(crds))
	}
	for kind, crd := range crds {
		t.Run(kind, func(t *testing.T) {
			checkBlock(t, kindPage(kind), "kind "+kind, kindTable(crd, clusters[kind]))
			checkBlock(t, kindPage(kind), "fields "+kind, fieldsTable(crd))
		})
	}
}

func kindTable(crd *apiextensionsv1.CustomResourceDefinition, clusters []string) string {
	version := crd.Spec.Versions[0]
	var columns []string
	for _, c := range version.AdditionalPrinterColumns {
		columns = append(columns, c.Name)
	}
	status := "yes"
	if version.Subresources == nil || version.Subresources.Status == nil {
		status = "no"
	}
	var b strings.Builder
	b.WriteString("| | |\n|---|---|\n")
	for _, row := range [][2]string{
		{"API", code(crd.Spec.Group + "/" + version.Name)},
		{"Resource", code(crd.Spec.Names.Plural)},
		{"Served in", strings.Join(clusters, ", ")},
		{"Scope", string(crd.Spec.Scope)},
		{"Status subresource", status},
		{"Columns", strings.Join(columns, ", ")},
	} {
		fmt.Fprintf(&b, "| %s | %s |\n", row[0], row[1])
	}
	return b.String()
}

func fieldsTable(crd *apiextensionsv1.CustomResourceDefinition) string {
	top := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	t := &table{}
	t.rules(nil, top)
	for _, part := range []string{"spec", "status"} {
		if p, ok := top.Properties[part]; ok {
			t.rules([]string{part}, &p)
			t.object([]string{part}, &p)
		}
	}
	out := "| Field | Type | Required | Default | Meaning |\n|---|---|---|---|---|\n" + t.fields.String()
	if t.checks.Len() > 0 {
		out += "\nChecked by the API server:\n\n" + t.checks.String()
	}
	return out
}

// table collects rows while it walks a schema.
type table struct{ fields, checks strings.Builder }

// foreign are the types that Kubernetes describes.
var foreign = map[string]string{
	"conditions": "[]Condition", "inlineVolumeSpec": "PersistentVolumeSpec",
	"resources": "VolumeResourceRequirements", "attachError": "VolumeError", "detachError": "VolumeError",
}

func (t *table) object(at []string, s *schema) {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		p := s.Properties[name]
		here := append(slices.Clone(at), name)
		required := ""
		if slices.Contains(s.Required, name) {
			required = "yes"
		}
		preset := ""
		if p.Default != nil {
			preset = strings.Trim(string(p.Default.Raw), `"`)
		}
		fmt.Fprintf(&t.fields, "| `%s` | %s | %s | %s | %s |\n", strings.Join(here, "."), cell(kindOf(name, &p)), required, code(preset), cell(p.Description))
		t.rules(here, &p)
		if foreign[name] == "" {
			t.below(here, &p)
		}
	}
}

// below walks into an object, or the objects of a list.
func (t *table) below(at []string, p *schema) {
	switch {
	case len(p.Properties) > 0:
		t.object(at, p)
	case p.Items != nil && p.Items.Schema != nil:
		at[len(at)-1] += "[]"
		t.object(at, p.Items.Schema)
	}
}

func (t *table) rules(at []string, s *schema) {
	for _, rule := range s.XValidations {
		where := ""
		if len(at) > 0 {
			where = "`" + strings.Join(at, ".") + "`: "
		}
		fmt.Fprintf(&t.checks, "* %s%s\n", where, cell(rule.Message))
	}
}

func kindOf(name string, p *schema) string {
	switch {
	case foreign[name] != "":
		return foreign[name]
	case len(p.Enum) > 0:
		var words []string
		for _, e := range p.Enum {
			words = append(words, code(strings.Trim(string(e.Raw), `"`)))
		}
		return strings.Join(words, ", ")
	case p.XIntOrString:
		return "quantity"
	case p.Type == "array" && p.Items != nil && p.Items.Schema != nil:
		return "[]" + kindOf("", p.Items.Schema)
	case p.AdditionalProperties != nil && p.AdditionalProperties.Schema != nil:
		return "map of " + kindOf("", p.AdditionalProperties.Schema)
	case p.Format == "date-time":
		return "time"
	}
	return p.Type
}
