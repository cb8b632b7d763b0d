// Command chart renders Moor's Helm chart, as the library of Helm does it:
//
//	chart          writes what is generated: the chart's README, deploy/kustomize, and what
//	               the values of deploy/charts/moor/ci render, which test/docs decodes
//	chart lint     is helm lint, with the values of ci
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	root, err := checkout()
	if err != nil {
		return err
	}
	switch {
	case len(args) == 0:
		return generate(root)
	case len(args) == 1 && args[0] == "lint":
		return lintChart(root)
	}
	return fmt.Errorf("%v is no command: there is lint, or none to generate", args)
}

// checkout is the root of the checkout, above the working directory.
func checkout() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "deploy", "charts")); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("no deploy/charts above the working directory: run it in a checkout of Moor")
}

// kustomizations are the directories of deploy/kustomize, and the values of ci they are made by.
var kustomizations = []string{"host", "host-attach-node", "dpu"}

// namespace is the one that the manifests name.
const namespace = "dpf-operator-system"

func generate(root string) error {
	values, err := os.ReadFile(filepath.Join(root, "deploy/charts/moor/values.yaml"))
	if err != nil {
		return err
	}
	page, err := readme(values)
	if err != nil {
		return err
	}
	if err := write(page, root, "deploy/charts/moor/README.md"); err != nil {
		return err
	}
	check, err := valuesSchema(values)
	if err != nil {
		return err
	}
	if err := write(check, root, "deploy/charts/moor/values.schema.json"); err != nil {
		return err
	}
	cases, err := valuesOf(root)
	if err != nil {
		return err
	}
	for name, values := range cases {
		out, err := render(root, name, values, nil)
		if err != nil {
			return fmt.Errorf("render the chart with ci/%s.yaml: %w", name, err)
		}
		if err := write(out, root, "test/docs/testdata/chart", name+".yaml"); err != nil {
			return err
		}
	}
	return kustomize(root, cases)
}

// kustomize writes, for those who do not use Helm, what the chart renders with its defaults.
func kustomize(root string, cases map[string]map[string]any) error {
	for _, name := range kustomizations {
		out, err := render(root, "moor", cases[name], nil)
		if err != nil {
			return err
		}
		header := "# Made by make generate from deploy/charts/moor with ci/" + name + ".yaml.\n"
		if err := write(header+plain(strings.TrimPrefix(out, "---\n")), root, "deploy/kustomize", name, "moor.yaml"); err != nil {
			return err
		}
		cluster := strings.TrimSuffix(name, "-attach-node")
		first, err := os.ReadFile(filepath.Join(root, "deploy", cluster, "00-namespace.yaml"))
		if err != nil {
			return err
		}
		if err := write(string(first), root, "deploy/kustomize", name, "namespace.yaml"); err != nil {
			return err
		}
		text := header + kustomization("namespace: "+namespace+"\n", "namespace.yaml", "../../../crds/"+cluster, "moor.yaml")
		if err := write(text, root, "deploy/kustomize", name, "kustomization.yaml"); err != nil {
			return err
		}
	}
	return errors.Join(crds(root, "host"), crds(root, "dpu"))
}

// crds lets kustomize take the CRDs of a cluster from where they are: it reads no file outside of
// a directory that says what is in it. Without an ending its file is none of the manifests.
func crds(root, cluster string) error {
	found, err := filepath.Glob(filepath.Join(root, "crds", cluster, "*.yaml"))
	if err != nil || len(found) == 0 {
		return fmt.Errorf("crds/%s: %d files, %v", cluster, len(found), err)
	}
	for i := range found {
		found[i] = filepath.Base(found[i])
	}
	return write("# Made by make generate.\n"+kustomization("", found...), root, "crds", cluster, "Kustomization")
}

func kustomization(more string, resources ...string) string {
	return "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n" + more + "resources:\n- " + strings.Join(resources, "\n- ") + "\n"
}

// plain leaves out what only Helm sets: an object that kustomize applies is not managed by Helm.
func plain(out string) string {
	var kept strings.Builder
	for line := range strings.Lines(out) {
		if trimmed := strings.TrimSpace(line); strings.HasPrefix(trimmed, "app.kubernetes.io/managed-by: ") || strings.HasPrefix(trimmed, "helm.sh/chart: ") {
			continue
		}
		kept.WriteString(line)
	}
	return kept.String()
}

func write(text string, path ...string) error {
	file := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(text), 0o644)
}
