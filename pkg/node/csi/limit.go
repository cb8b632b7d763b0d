package csi

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// Limit is how many volumes a node takes, by the functions that can hold one
// each. Kubernetes has one number for all StorageClasses, so it counts only the
// kinds that the classes here use: with others counted too, a node would pass for
// free when its functions of the kind that is wanted are all in use.
type Limit struct {
	kinds   []string
	virtual func() (int64, error)
	plugged atomic.Int64
}

// NewLimit counts the kinds of functions that are named: vf, as many as virtual
// says there are on this host, and hotplug, as many as the DPU says.
func NewLimit(kinds []string, virtual func() (int64, error)) (*Limit, error) {
	for _, kind := range kinds {
		if kind != string(provisioner.VF) && kind != string(provisioner.Hotplug) {
			return nil, fmt.Errorf("function %q is none of those that volumes are limited by: %s and %s", kind, provisioner.VF, provisioner.Hotplug)
		}
	}
	if len(kinds) == 0 {
		return nil, fmt.Errorf("no function is named by which volumes are limited: name %s or %s", provisioner.VF, provisioner.Hotplug)
	}
	return &Limit{kinds: kinds, virtual: virtual}, nil
}

// Seen records how many functions of a kind the DPU says it has, in all. While
// it says nothing, as after its start, what it said last counts.
func (l *Limit) Seen(kind string, total int64) {
	if kind == string(provisioner.Hotplug) {
		l.plugged.Store(total)
	}
}

// Count is the sum as it is known now. Before the first word of the DPU it is too
// small, never too large.
func (l *Limit) Count() (int64, error) {
	var sum int64
	if slices.Contains(l.kinds, string(provisioner.VF)) {
		n, err := l.virtual()
		if err != nil {
			return 0, err
		}
		sum += n
	}
	if slices.Contains(l.kinds, string(provisioner.Hotplug)) {
		sum += l.plugged.Load()
	}
	return sum, nil
}
