package kubebuild

import (
	"context"
	"io"
	"path/filepath"
)

// schedulerDir has kube-scheduler with Moor's plugin. It is built like Moor's own
// commands, with which it changes, so that what the cache has of Kubernetes does
// not depend on it.
const schedulerDir = "hack/kube/scheduler"

// SchedulerProgram is the name of kube-scheduler with Moor's plugin.
const SchedulerProgram = "moor-scheduler"

// Tags is the flag with the build tags of Moor's programs, which are those of hack/build.sh.
const Tags = "-tags=grpcnotrace"

// Scheduler builds kube-scheduler with Moor's plugin into a directory. Go's build
// cache has it unless it changed.
func Scheduler(ctx context.Context, root, bin string, progress io.Writer) error {
	return Go(ctx, filepath.Join(root, schedulerDir), SchedulerProgram, progress, "build", "-trimpath", "-buildvcs=false", Tags,
		"-ldflags", "-s -w", "-o", filepath.Join(bin, SchedulerProgram), ".")
}
