package main

import (
	"strings"
	"testing"
)

// Drivers of different names, or of different nodes, have data paths of their own, and a driver that is
// started again has its old one. The name leaves room in the label of a loop device, which has 63 bytes.
func TestDataPath(t *testing.T) {
	seen := map[string]string{}
	for _, of := range []struct{ name, node string }{
		{"local.csi.moor.dev", "n1"},
		{"local.csi.moor.dev", "n2"},
		{"fast.csi.moor.dev", "n1"},
		{"a", "b-c"},
		{"a-b", "c"},
		{"a", strings.Repeat("n", 253)},
	} {
		path := dataPathOf(of.name, of.node)
		if other, taken := seen[path]; taken {
			t.Errorf("%s on %s has the data path of %s", of.name, of.node, other)
		}
		if again := dataPathOf(of.name, of.node); again != path || len(path) > 30 {
			t.Errorf("%s on %s has %q, and then %q", of.name, of.node, path, again)
		}
		seen[path] = of.name + " on " + of.node
	}
}

func dataPathOf(name, node string) string {
	o := &options{name: name}
	o.nodeID = node
	return o.dataPath()
}
