package main

import (
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
)

// kubernetes is the release for which the chart is rendered.
const kubernetes = "v1.35.4"

// load reads the chart of a checkout.
func load(root string) (*chart.Chart, error) {
	log.SetOutput(io.Discard) // it tells of each symbolic link that it follows
	defer log.SetOutput(os.Stderr)
	return loader.LoadDir(filepath.Join(root, "deploy/charts/moor"))
}

// valuesOf are the values of ci, by name.
func valuesOf(root string) (map[string]map[string]any, error) {
	found, err := filepath.Glob(filepath.Join(root, "deploy/charts/moor/ci/*.yaml"))
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, errors.New("deploy/charts/moor/ci has no values")
	}
	out := map[string]map[string]any{}
	for _, file := range found {
		values, err := chartutil.ReadValuesFile(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		out[strings.TrimSuffix(filepath.Base(file), ".yaml")] = values
	}
	return out, nil
}

// render is what helm template prints for a release of that name in the namespace of the
// manifests; there is what lookup sees of a cluster, nil for none.
func render(root, release string, values map[string]any, there engine.ClientProvider) (string, error) {
	return renderIn(root, namespace, release, values, there)
}

// renderIn is the same in any namespace.
func renderIn(root, namespace, release string, values map[string]any, there engine.ClientProvider) (string, error) {
	c, err := load(root)
	if err != nil {
		return "", err
	}
	version, err := chartutil.ParseKubeVersion(kubernetes)
	if err != nil {
		return "", err
	}
	capabilities := chartutil.DefaultCapabilities.Copy()
	capabilities.KubeVersion = *version
	of := chartutil.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(c, values, of, capabilities)
	if err != nil {
		return "", err
	}
	draw := func() (map[string]string, error) { return engine.Render(c, all) }
	if there != nil {
		draw = func() (map[string]string, error) { return engine.RenderWithClientProvider(c, all, there) }
	}
	files, err := draw()
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, ".yaml") && strings.TrimSpace(files[name]) != "" {
			out.WriteString(strings.TrimSpace(files[name]) + "\n")
		}
	}
	return out.String(), nil
}

// lintChart is helm lint with each of the values.
func lintChart(root string) error {
	log.SetOutput(io.Discard)
	cases, err := valuesOf(root)
	if err != nil {
		return err
	}
	var bad []string
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		for _, m := range lint.AllWithKubeVersion(filepath.Join(root, "deploy/charts/moor"), cases[name], namespace, nil).Messages {
			if m.Severity >= support.WarningSev {
				bad = append(bad, fmt.Sprintf("ci/%s.yaml: %s", name, m))
			}
		}
	}
	if len(bad) > 0 {
		return errors.New("helm lint:\n" + strings.Join(bad, "\n"))
	}
	fmt.Printf("the chart is lint-free with %d sets of values\n", len(cases))
	return nil
}
