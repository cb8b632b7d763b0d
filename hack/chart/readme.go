package main

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// head is what the chart's README says before its table.
const head = `<!-- Made by make generate from values.yaml; the words are in hack/chart/readme.go. -->
# Chart moor

One chart, two ways to use it:

* **a whole cluster**: ` + "`cluster: host` or `cluster: dpu`" + `, one release in each cluster. Names are those of [the manifests](../../README.md);
* **one component**: ` + "`cluster`" + ` empty, exactly one component enabled, as NVIDIA DPF's chart ` + "`dpf-storage`" + ` does it: the same keys, names and labels,
  and ` + "`serviceDaemonSet`" + ` as DPF's operator fills it for a DPUService.

[Installing Moor](../../../docs/installing.md) goes through it; [decision 0036](../../../docs/decisions/0036-helm.md) says why it is made so.
Values that contradict each other are refused in words.

| Value | Default | What |
|---|---|---|
`

// readme is the chart's README: a row for each value, with the words of its comment (# --).
func readme(values []byte) (string, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(values, &document); err != nil {
		return "", fmt.Errorf("values.yaml: %w", err)
	}
	var out strings.Builder
	out.WriteString(head)
	if err := rows(&out, "", document.Content[0]); err != nil {
		return "", err
	}
	return out.String(), nil
}

// rows writes a row for each leaf below a mapping; a leaf without words stands for itself.
func rows(out *strings.Builder, prefix string, mapping *yaml.Node) error {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		name := prefix + key.Value
		if value.Kind == yaml.MappingNode && len(value.Content) > 0 {
			if err := rows(out, name+".", value); err != nil {
				return err
			}
			continue
		}
		preset, err := yaml.Marshal(value)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		shown, _, _ := strings.Cut(strings.TrimSpace(string(preset)), "\n")
		shown, _, _ = strings.Cut(shown, " #")
		if value.Tag == "!!null" {
			shown = ""
		} else {
			shown = "`" + shown + "`"
		}
		fmt.Fprintf(out, "| `%s` | %s | %s |\n", name, shown, words(key))
	}
	return nil
}

// words is the comment above a key, from its "# -- " on.
func words(key *yaml.Node) string {
	_, text, _ := strings.Cut(key.HeadComment, "# -- ")
	text = strings.ReplaceAll(text, "\n# ", " ")
	return strings.ReplaceAll(text, "|", `\|`)
}
