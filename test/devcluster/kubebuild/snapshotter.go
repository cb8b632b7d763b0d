package kubebuild

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	// snapshotterDir pins external-snapshotter. It is not one of the modules:
	// it is built like Moor's own commands, so that what the cache has of
	// Kubernetes does not depend on it.
	snapshotterDir = "hack/kube/snapshotter"
	snapshotter    = "github.com/kubernetes-csi/external-snapshotter/v8"
	snapshotKinds  = "github.com/kubernetes-csi/external-snapshotter/client/v8"
)

// SnapshotterManifests are upstream's own manifests of external-snapshotter.
type SnapshotterManifests struct {
	// CRDs are those of snapshot.storage.k8s.io and groupsnapshot.storage.k8s.io.
	CRDs []string `json:"crds"`
	// Controller is the account snapshot-controller in kube-system, and its rights.
	Controller string `json:"controller"`
}

// Snapshotter builds csi-snapshotter and snapshot-controller into a directory,
// and says where their manifests are.
func Snapshotter(ctx context.Context, root, bin string, progress io.Writer) (SnapshotterManifests, error) {
	dir := filepath.Join(root, snapshotterDir)
	err := Go(ctx, dir, "csi-snapshotter, snapshot-controller", progress, "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", bin+"/",
		snapshotter+"/cmd/csi-snapshotter", snapshotter+"/cmd/snapshot-controller")
	if err != nil {
		return SnapshotterManifests{}, err
	}
	out := SnapshotterManifests{}
	for module, files := range map[string]string{snapshotKinds: "config/crd/*snapshot.storage.k8s.io_*.yaml", snapshotter: "deploy/kubernetes/snapshot-controller/rbac-*.yaml"} {
		at, err := moduleDir(ctx, dir, module)
		if err != nil {
			return out, err
		}
		found, err := filepath.Glob(filepath.Join(at, files))
		if err != nil || len(found) == 0 {
			return out, fmt.Errorf("find %s in module %s: %w", files, module, err)
		}
		if module == snapshotKinds {
			out.CRDs = found
		} else {
			out.Controller = found[0]
		}
	}
	return out, nil
}

// moduleDir is where Go keeps a module that another one requires.
func moduleDir(ctx context.Context, dir, module string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module)
	cmd.Dir = dir
	out, err := cmd.Output()
	if at := strings.TrimSpace(string(out)); err == nil && at != "" {
		return at, nil
	}
	return "", fmt.Errorf("ask Go where module %s is (is it downloaded?): %w", module, err)
}
