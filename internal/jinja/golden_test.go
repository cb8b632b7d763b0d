package jinja

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"sigs.k8s.io/yaml"
)

// golden is a template, what it is given, and what Jinja2 3.1 made of it with the options of
// Pods-as-Volumes. See testdata/README.md.
type golden struct {
	Name      string         `json:"name"`
	Template  string         `json:"t"`
	Variables map[string]any `json:"ctx"`
	Result    struct {
		OK    bool   `json:"ok"`
		Out   any    `json:"out"`
		Error string `json:"err"`
	} `json:"ref"`
}

func goldens(t testing.TB) []golden {
	t.Helper()
	files, err := filepath.Glob("testdata/jinja-golden*.json")
	if err != nil || len(files) != 3 {
		t.Fatalf("%d golden files: %v", len(files), err)
	}
	var out []golden
	for _, file := range files {
		var all []golden
		read(t, file, &all)
		for i := range all {
			all[i].Variables = exact(all[i].Variables).(map[string]any)
		}
		out = append(out, all...)
	}
	return out
}

// dialect are the cases that share their variables.
func dialect(t testing.TB) []golden {
	t.Helper()
	var all struct {
		Variables map[string]any `json:"ctx"`
		Cases     []golden       `json:"cases"`
	}
	read(t, "testdata/dialect.json", &all)
	for i := range all.Cases {
		all.Cases[i].Variables = exact(all.Variables).(map[string]any)
	}
	return all.Cases
}

func read(t testing.TB, file string, into any) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(content, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// exact makes whole numbers of those that JSON reads as floats.
func exact(v any) any {
	switch v := v.(type) {
	case float64:
		if n := int64(v); float64(n) == v {
			return n
		}
	case []any:
		for i := range v {
			v[i] = exact(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = exact(v[k])
		}
	}
	return v
}

// claim is the function of the golden templates.
func claim(_ context.Context, positional []any, named map[string]any) (any, error) {
	name := map[int]string{0: "name", 1: "namespace"}
	got := map[string]any{}
	for i, v := range positional {
		got[name[i]] = v
	}
	for k, v := range named {
		got[k] = v
	}
	if got["name"] != "n1" || got["namespace"] != "ns1" {
		return nil, errors.New("no such claim")
	}
	return map[string]any{
		"metadata": map[string]any{"name": "n1", "namespace": "ns1", "annotations": map[string]any{"k": "v"}},
		"spec":     map[string]any{"volumeName": "pv-1", "accessModes": []any{"ReadWriteOnce"}},
	}, nil
}

// evaluate is what becomes of a field whose text the template is.
func evaluate(t testing.TB, g golden) (any, error) {
	t.Helper()
	compiled, err := Compile(g.Template)
	if err != nil {
		return nil, err
	}
	result, err := compiled.Render(t.Context(), g.Variables, map[string]Function{"get_pvc": claim})
	if err != nil {
		return nil, err
	}
	switch asYAML, set := result.Variables["yaml"]; {
	case !set || asYAML == false:
		return result.Text, nil
	case asYAML != true:
		return nil, errors.New("yaml is no boolean")
	}
	var out any
	err = yaml.Unmarshal([]byte(result.Text), &out)
	return out, err
}

func TestGolden(t *testing.T) {
	all := goldens(t)
	if len(all) != 176 {
		t.Fatalf("%d cases, and 176 are to be there", len(all))
	}
	for _, g := range append(all, dialect(t)...) {
		t.Run(g.Name, func(t *testing.T) {
			got, err := evaluate(t, g)
			switch {
			case g.Result.OK && err != nil:
				t.Errorf("%q: %v", g.Template, err)
			case !g.Result.OK && err == nil:
				t.Errorf("%q gives %#v, want the error %s", g.Template, got, g.Result.Error)
			case g.Result.OK && !reflect.DeepEqual(exact(got), exact(g.Result.Out)):
				t.Errorf("%q\n gives %#v\n want  %#v", g.Template, got, g.Result.Out)
			}
		})
	}
}
