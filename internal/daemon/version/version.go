// Package version tells what a program was built from. It is apart from package
// daemon so that programs which must not link a client of a cluster have it too.
package version

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/go-logr/logr"
)

// version and commit are set by the linker: see hack/build.sh.
var version, commit string

// Build says what a program was built from.
type Build struct {
	// Version is "dev", and Commit "unknown", if the program was built without.
	Version, Commit, Go string
}

// String is what a program prints with --version, after its name.
func (b Build) String() string {
	return fmt.Sprintf("%s (commit %s, %s)", b.Version, b.Commit, b.Go)
}

// Manifest is what a plugin tells of its build beside its version.
func (b Build) Manifest() map[string]string {
	return map[string]string{"commit": b.Commit, "go": b.Go}
}

// LogStart is the first line that a program logs.
func LogStart(log logr.Logger, program string) {
	b := Built()
	log.Info("starting", "program", program, "version", b.Version, "commit", b.Commit, "go", b.Go)
}

// Built tells what this program was built from: what the linker was told, else
// what the Go command has recorded, as it does for "go install ...@v1.2.3".
func Built() Build {
	b := Build{Version: version, Commit: commit, Go: runtime.Version()}
	if info, ok := debug.ReadBuildInfo(); ok {
		b.complete(info)
	}
	b.Version, b.Commit = cmp.Or(b.Version, "dev"), cmp.Or(b.Commit, "unknown")
	return b
}

// complete fills in what the linker was not told.
func (b *Build) complete(info *debug.BuildInfo) {
	if b.Version == "" && info.Main.Version != "(devel)" {
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		if b.Commit == "" && s.Key == "vcs.revision" {
			b.Commit = s.Value
		}
	}
}
