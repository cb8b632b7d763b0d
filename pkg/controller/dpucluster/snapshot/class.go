package snapshot

import (
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/internal/kube"
)

// The annotations that mark the class of a driver that is taken where several are
// there, as they do for snapshot-controller.
const (
	isDefault      = "snapshot.storage.kubernetes.io/is-default-class"
	isGroupDefault = "groupsnapshot.storage.kubernetes.io/is-default-class"
)

// candidate is a class of snapshots, or of groups of them.
type candidate struct {
	name, driver string
	isDefault    bool
}

func candidateOf(o client.Object, driver, mark string) candidate {
	return candidate{o.GetName(), driver, o.GetAnnotations()[mark] == "true"}
}

// selectClass chooses the class of a driver: the only one, or the one that is
// marked as the default.
func selectClass(kind, mark string, classes []candidate, driver string) (string, error) {
	var all, defaults []string
	for _, c := range classes {
		if c.driver != driver {
			continue
		}
		all = append(all, c.name)
		if c.isDefault {
			defaults = append(defaults, c.name)
		}
	}
	slices.Sort(all)
	switch {
	case len(defaults) == 1:
		return defaults[0], nil
	case len(all) == 1:
		return all[0], nil
	case len(all) == 0:
		return "", kube.WaitFor("the vendor cannot make snapshots, or lacks a class for them: the DPU cluster has no %s of driver %s", kind, driver)
	}
	return "", kube.WaitFor("driver %s has the %ses %s: mark exactly one with the annotation %s: \"true\"",
		driver, kind, strings.Join(all, ", "), mark)
}
