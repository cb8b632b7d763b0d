package volume

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	schedulinghelpers "k8s.io/component-helpers/scheduling/corev1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

// dpu is a node of the DPU cluster, and which drivers it has.
type dpu struct {
	node *corev1.Node
	// keys are the topology keys of each driver there.
	keys map[string][]string
}

// dpusOf joins nodes with what their kubelets say of drivers. The order is that
// of the nodes' names.
func dpusOf(nodes []corev1.Node, known []storagev1.CSINode) []dpu {
	drivers := map[string]map[string][]string{}
	for i := range known {
		of := map[string][]string{}
		for _, d := range known[i].Spec.Drivers {
			of[d.Name] = d.TopologyKeys
		}
		drivers[known[i].Name] = of
	}
	out := make([]dpu, len(nodes))
	for i := range nodes {
		out[i] = dpu{node: &nodes[i], keys: drivers[nodes[i].Name]}
	}
	slices.SortFunc(out, func(a, b dpu) int { return strings.Compare(a.node.Name, b.node.Name) })
	return out
}

// at reports whether the DPU lies in a place.
func (d dpu) at(place map[string]string) bool {
	for k, v := range place {
		have, told := d.node.Labels[k]
		if k == moorv1alpha1.TopologyDPU {
			have, told = kube.LabelValue(d.node.Name), true
		}
		if !told || have != v {
			return false
		}
	}
	return true
}

// atOneOf is the index of the first place that the DPU lies in; -1 if it lies
// in none. Where no place is named, that is 0.
func (d dpu) atOneOf(places []map[string]string) int {
	if len(places) == 0 {
		return 0
	}
	return slices.IndexFunc(places, d.at)
}

// reaches reports whether a volume with that node affinity is reached from the
// DPU.
func (d dpu) reaches(affinity *corev1.VolumeNodeAffinity) (bool, error) {
	if affinity == nil || affinity.Required == nil {
		return true, nil
	}
	ok, err := schedulinghelpers.MatchNodeSelectorTerms(d.node, affinity.Required)
	if err != nil {
		return false, fmt.Errorf("read the node affinity of the PersistentVolume: %w", err)
	}
	return ok, nil
}

// placesOf puts a node affinity into places: those of the keys that drivers
// announce, or, where these cannot say it, the DPUs that it allows now. None is
// everywhere; a volume that no DPU reaches is an error.
func placesOf(affinity *corev1.VolumeNodeAffinity, dpus []dpu) ([]map[string]string, error) {
	if affinity == nil || affinity.Required == nil {
		return nil, nil
	}
	if places, ok := placesOfSelector(affinity.Required, announcedKeys(dpus)); ok {
		return places, nil
	}
	var out []map[string]string
	for _, d := range dpus {
		ok, err := d.reaches(affinity)
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, map[string]string{moorv1alpha1.TopologyDPU: kube.LabelValue(d.node.Name)})
		}
	}
	if len(out) == 0 {
		return nil, unreachablef("no DPU reaches it: none has what the node affinity of the vendor's PersistentVolume asks for")
	}
	return out, nil
}

// announcedKeys are the topology keys that hosts have too. The name of a machine is
// none: a host has its own.
func announcedKeys(dpus []dpu) map[string]bool {
	out := map[string]bool{}
	for _, d := range dpus {
		for _, keys := range d.keys {
			for _, k := range keys {
				out[k] = k != corev1.LabelHostname
			}
		}
	}
	return out
}

// placesOfSelector writes out a selector, which is any of its terms, each of which is
// all of its requirements; false if it says what places with those keys cannot, or
// not as many as are remembered.
func placesOfSelector(selector *corev1.NodeSelector, keys map[string]bool) ([]map[string]string, bool) {
	var out []map[string]string
	for _, term := range selector.NodeSelectorTerms {
		if len(term.MatchFields) > 0 || len(term.MatchExpressions) == 0 {
			return nil, false
		}
		places := []map[string]string{{}}
		for _, e := range term.MatchExpressions {
			if e.Operator != corev1.NodeSelectorOpIn || !keys[e.Key] {
				return nil, false
			}
			places = combine(places, e.Key, e.Values)
		}
		out = append(out, places...)
		if len(out) > storagev1alpha1.MostPlaces {
			return nil, false
		}
	}
	return out, len(out) > 0
}

// combine is each place with each of the values.
func combine(places []map[string]string, key string, values []string) []map[string]string {
	var out []map[string]string
	for _, p := range places {
		for _, v := range values[:min(len(values), storagev1alpha1.MostPlaces+1)] {
			one := maps.Clone(p)
			one[key] = v
			if have, twice := p[key]; !twice || have == v {
				out = append(out, one)
			}
		}
	}
	return out[:min(len(out), storagev1alpha1.MostPlaces+1)]
}

// describePlaces names places, not too many of them.
func describePlaces(places []map[string]string) string {
	const most = 3
	var out []string
	for _, p := range places[:min(len(places), most)] {
		var one []string
		for _, k := range slices.Sorted(maps.Keys(p)) {
			one = append(one, k+"="+p[k])
		}
		out = append(out, strings.Join(one, ","))
	}
	if more := len(places) - most; more > 0 {
		out = append(out, fmt.Sprintf("%d more", more))
	}
	return strings.Join(out, "; ")
}

// constraints is what counts when a vendor is to make a volume somewhere.
type constraints struct {
	driver string
	// allowed is what the vendor's StorageClass allows.
	allowed []corev1.TopologySelectorTerm
	// wanted are the places from one of which it has to be reached, the most
	// preferred first; none: from anywhere.
	wanted []map[string]string
	// source are the places from which that is reached of which it is a copy;
	// none: from everywhere.
	source []map[string]string
}

// topologyAware reports whether a driver makes a difference between DPUs.
func topologyAware(dpus []dpu, driver string) bool {
	for _, d := range dpus {
		if len(d.keys[driver]) > 0 {
			return true
		}
	}
	return false
}

// bestNodes are the DPUs for which the volume is to be made: of those that the
// vendor can make it for, the ones at the most preferred place. A driver that no
// DPU has registered needs no registration.
func bestNodes(dpus []dpu, s constraints) []dpu {
	registered := false
	for _, d := range dpus {
		_, has := d.keys[s.driver]
		registered = registered || has
	}
	var out []dpu
	least := len(s.wanted)
	for _, d := range dpus {
		_, has := d.keys[s.driver]
		rank := d.atOneOf(s.wanted)
		if has != registered || rank < 0 || !allows(s.allowed, d.node.Labels) || d.atOneOf(s.source) < 0 {
			continue
		}
		if rank < least {
			least, out = rank, nil
		}
		if rank == least {
			out = append(out, d)
		}
	}
	return out
}

// allows reports whether a StorageClass allows volumes for a node.
func allows(terms []corev1.TopologySelectorTerm, labels map[string]string) bool {
	for _, t := range terms {
		all := true
		for _, e := range t.MatchLabelExpressions {
			one := false
			for _, v := range e.Values {
				have, told := labels[e.Key]
				one = one || told && have == v
			}
			all = all && one
		}
		if all {
			return true
		}
	}
	return len(terms) == 0
}

// constraintsOf is where a vendor may make the volume by its StorageClass; source
// are the places of what it is to be a copy of.
func constraintsOf(v *storagev1alpha1.Volume, class *storagev1.StorageClass, source []map[string]string) constraints {
	return constraints{driver: class.Provisioner, allowed: class.AllowedTopologies, wanted: v.Spec.Request.AccessibleFrom, source: source}
}

// unreachable is a wait for something that, as things are, will not come: the
// volume cannot be had from where it is to be reached.
type unreachable struct{ error }

func (u unreachable) Unwrap() error { return u.error }

func unreachablef(format string, args ...any) error {
	return unreachable{kube.WaitFor(format, args...)}
}

func isUnreachable(err error) bool {
	var u unreachable
	return errors.As(err, &u)
}
