package pods

import (
	"fmt"

	yamlnode "go.yaml.in/yaml/v3"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// maxYAML is how large a result that is YAML may be once its aliases are written out. An object of
// the API has 1.5 MiB at most.
const maxYAML = 4 << 20

// readYAML reads the result of a template that is YAML. What is read has no aliases any more: a text that
// repeats a long one some thousand times would not fit into memory, so its size is counted before.
func readYAML(text string) (any, error) {
	var document yamlnode.Node
	if err := yamlnode.Unmarshal([]byte(text), &document); err != nil {
		return nil, err
	}
	if (sizes{}).of(&document) > maxYAML {
		return nil, fmt.Errorf("it has more than %d bytes with its aliases written out", maxYAML)
	}
	content, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		return nil, err
	}
	var out any
	err = utiljson.Unmarshal(content, &out)
	return out, err
}

// sizes are those of nodes that aliases stand for.
type sizes map[*yamlnode.Node]int

// of is the size of a node with its aliases written out, or more than maxYAML.
func (s sizes) of(n *yamlnode.Node) int {
	if n.Kind == yamlnode.AliasNode {
		return s.of(n.Alias)
	}
	if size, known := s[n]; known {
		return size
	}
	if n.Anchor != "" {
		s[n] = maxYAML + 1 // while it is counted: what has itself within it has no end
	}
	size := 1 + len(n.Value)
	for _, child := range n.Content {
		size = min(size+s.of(child), maxYAML+1)
	}
	if n.Anchor != "" {
		s[n] = size
	}
	return size
}
