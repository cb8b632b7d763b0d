package main

import (
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

const sbom = `{"bomFormat": "CycloneDX", "components": [
	{"name": "b.example", "version": "v1.0.0", "purl": "pkg:golang/b.example@v1.0.0"}, {"name": "c.example", "version": "v2.0.0", "purl": "pkg:golang/c.example@v2.0.0"}]}`

func TestMissing(t *testing.T) {
	b, c := &debug.Module{Path: "b.example", Version: "v1.0.0"}, &debug.Module{Path: "c.example", Version: "v2.0.0"}
	for name, test := range map[string]struct {
		deps []*debug.Module
		want []string
	}{
		"all there":           {[]*debug.Module{b, c}, nil},
		"fewer":               {[]*debug.Module{b}, nil},
		"another version":     {[]*debug.Module{b, {Path: "c.example", Version: "v2.0.1"}}, []string{"c.example@v2.0.1"}},
		"others, sorted":      {[]*debug.Module{{Path: "z.example", Version: "v1.0.0"}, {Path: "d.example", Version: "v1.0.0"}, c}, []string{"d.example@v1.0.0", "z.example@v1.0.0"}},
		"replaced by one":     {[]*debug.Module{{Path: "d.example", Version: "v1.0.0", Replace: b}}, nil},
		"replaced by another": {[]*debug.Module{{Path: "b.example", Version: "v1.0.0", Replace: &debug.Module{Path: "f.example", Version: "v1.0.0"}}}, []string{"f.example@v1.0.0"}},
		"a program of none":   {nil, []string{"all modules"}},
	} {
		if got, err := Missing(&debug.BuildInfo{Deps: test.deps}, []byte(sbom)); err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%s: got %v, %v; want %v", name, got, err, test.want)
		}
	}
	if got, err := Missing(&debug.BuildInfo{}, []byte("no SBOM")); err == nil {
		t.Errorf("what is no SBOM lacks %v", got)
	}
}

func TestWithPackages(t *testing.T) {
	got, err := WithPackages([]byte(sbom), []Package{{Name: "libstdc++6", Version: "1:2~3", Arch: "arm64"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"pkg:golang/b.example@v1.0.0"`, `"pkg:deb/debian/libstdc%2B%2B6@1%3A2~3?arch=arm64\u0026distro=debian-12"`, `"libstdc++6"`} {
		if !strings.Contains(string(got), want) {
			t.Errorf("%s is not in\n%s", want, got)
		}
	}
	for name, text := range map[string]string{"no JSON": "<bom/>", "another format": `{"spdxVersion": "SPDX-2.3", "components": [{}]}`, "nothing": `{"bomFormat": "CycloneDX"}`} {
		if got, err := WithPackages([]byte(text), nil); err == nil {
			t.Errorf("%s is taken for an SBOM:\n%s", name, got)
		}
	}
}
