// Package version holds the version of the build, set by the linker.
package version

// Version is set with -ldflags "-X .../internal/version.Version=v1.2.3".
var Version = "dev"
