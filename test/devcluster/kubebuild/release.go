package kubebuild

import (
	"fmt"
	"strings"
)

// Release is one of the releases of Kubernetes that a test bed can run, each pinned in a module
// of its own below hack/kube. The zero value is Default.
type Release string

// The releases. What Moor promises of others stands in docs/release.md.
const (
	Default Release = "default"
	Oldest  Release = "oldest"
	Newest  Release = "newest"
)

// pins are the modules, and the versions that they require.
var pins = map[Release]struct{ dir, version string }{
	Oldest:  {"hack/kube/oldest", "v1.34.4"},
	Default: {"hack/kube/kubernetes", "v1.35.4"},
	Newest:  {"hack/kube/newest", "v1.37.2"},
}

// Version is that of Kubernetes, as v1.35.4.
func (r Release) Version() string { return pins[r.known()].version }

func (r Release) known() Release {
	if r == "" {
		return Default
	}
	return r
}

// String implements pflag.Value.
func (r *Release) String() string { return string(r.known()) }

// Set implements pflag.Value: it refuses what is no release.
func (r *Release) Set(text string) error {
	if _, is := pins[Release(text)]; !is {
		return fmt.Errorf("there is no release %q: want %s, %s or %s", text, Oldest, Default, Newest)
	}
	*r = Release(text)
	return nil
}

// Type implements pflag.Value.
func (r *Release) Type() string { return "release" }

// module builds the release, with the version that its programs tell.
func (r Release) module() module {
	pin := pins[r.known()]
	minor := strings.Split(pin.version, ".")[1]
	return module{
		dir: pin.dir,
		ldflags: "-s -w -X " + versionVar + "gitVersion=" + pin.version +
			" -X " + versionVar + "gitMajor=1 -X " + versionVar + "gitMinor=" + minor +
			" -X " + versionVar + "gitTreeState=clean" +
			" -X " + versionVar + "gitCommit=0000000000000000000000000000000000000000",
		programs: map[string]string{
			"kube-apiserver":          "k8s.io/kubernetes/cmd/kube-apiserver",
			"kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
			"kube-scheduler":          "k8s.io/kubernetes/cmd/kube-scheduler",
			"kubelet":                 "k8s.io/kubernetes/cmd/kubelet",
			"kubectl":                 "k8s.io/kubernetes/cmd/kubectl",
		},
	}
}

// modules are all that is built for a bed of the release.
func (r Release) modules() []module { return append([]module{r.module()}, beside...) }
