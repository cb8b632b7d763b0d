package paths

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// read tells of the paths of devices that exist, in their order, from what the service
// answered.
func read(devices []string, controllers []snaprpc.NVMeController, stats []snaprpc.BdevIOStat) []provisioner.Path {
	counts := byName(stats)
	out := make([]provisioner.Path, 0, len(devices))
	for _, name := range devices {
		path := provisioner.Path{Device: name, InFlight: -1}
		if c, ok := controllerOf(name, controllers); ok {
			path.State, path.Detail = stateOf(c)
			path.Connections = connectionsOf(c)
		}
		if s, ok := counts[name]; ok {
			path.Completed = int64(s.Completed() & math.MaxInt64)
			if depth, sampled := s.QueueDepth(); sampled {
				path.InFlight = depth
			}
		}
		out = append(out, path)
	}
	return out
}

// unsampled are the devices whose queue depth is not sampled. One that has a period and
// no sample yet is none of them: a period that is set anew begins anew.
func unsampled(devices []string, stats []snaprpc.BdevIOStat) []string {
	counts := byName(stats)
	var out []string
	for _, name := range devices {
		if s, ok := counts[name]; ok && s.QDPeriod == 0 && s.SampledDepth == nil {
			out = append(out, name)
		}
	}
	return out
}

func byName(stats []snaprpc.BdevIOStat) map[string]snaprpc.BdevIOStat {
	out := make(map[string]snaprpc.BdevIOStat, len(stats))
	for _, s := range stats {
		out[s.Name] = s
	}
	return out
}

// namespace is how SPDK names the bdev of a controller's namespace: "<controller>n<nsid>".
var namespace = regexp.MustCompile(`^(.+)n[0-9]+$`)

// controllerOf returns the controller by which a device reaches its storage: the one that
// has the device's name, or that the device is named for.
func controllerOf(device string, controllers []snaprpc.NVMeController) (snaprpc.NVMeController, bool) {
	names := []string{device}
	if m := namespace.FindStringSubmatch(device); m != nil {
		names = append(names, m[1])
	}
	for _, name := range names {
		if i := slices.IndexFunc(controllers, func(c snaprpc.NVMeController) bool { return c.Name == name }); i >= 0 {
			return controllers[i], true
		}
	}
	return snaprpc.NVMeController{}, false
}

// better orders the states of paths to one storage: the best counts.
var better = map[provisioner.PathState]int{
	provisioner.PathUnknown: 0, provisioner.PathFailed: 1, provisioner.PathReconnecting: 2, provisioner.PathConnected: 3,
}

// stateOf is the state of the best of a controller's paths, and the service's words for
// all of them. One path that works is enough. A path of which the service tells no word
// says nothing, and a controller without any is not known to be lost.
func stateOf(c snaprpc.NVMeController) (provisioner.PathState, string) {
	best, words := provisioner.PathUnknown, []string(nil)
	for _, path := range c.Paths {
		if path.State == "" {
			continue
		}
		words = append(words, path.State)
		if state := meaning(path.State); better[state] > better[best] {
			best = state
		}
	}
	return best, strings.Join(words, ", ")
}

// connectionsOf names the connections of a controller that are there, in order: each by its storage, and
// the number that this gave to it, as each storage counts for itself. One that is lost is not named, and
// one that is made anew has another number; so a loss shows also where another way is left, or the way
// is back before it is looked at.
func connectionsOf(c snaprpc.NVMeController) string {
	var out []string
	for _, path := range c.Paths {
		if path.Controller != nil && meaning(path.State) == provisioner.PathConnected {
			out = append(out, fmt.Sprintf("%s controller %d", path.TrID, *path.Controller))
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// meaning is what a word of the service says of a path. A word that is not known is of a
// path that is being worked on: only the known ones say that it works or has ended.
func meaning(word string) provisioner.PathState {
	switch word {
	case snaprpc.PathEnabled:
		return provisioner.PathConnected
	case snaprpc.PathFailed, snaprpc.PathDeleting, snaprpc.PathDisabled:
		return provisioner.PathFailed
	}
	return provisioner.PathReconnecting
}
