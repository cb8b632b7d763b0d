//go:build api

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

const (
	manyVolumes  = 1000
	maxRSSKBytes = 80 * 1024
)

// The process itself, with its flags, serves a thousand volumes that arrive at
// once in less than 80 MB of memory, evenly over two vendors.
func TestAThousandVolumes(t *testing.T) {
	s := startServer(t)
	for _, vendor := range []string{"a", "b"} {
		s.create(kubetest.StorageVendor(vendor))
		s.create(kubetest.StorageClass(vendor))
	}
	policy := kubetest.StoragePolicy("gold", "a", "b")
	s.create(policy)
	pid := s.startProcess()
	began := time.Now()
	each(manyVolumes, func(i int) { s.create(kubetest.Volume(fmt.Sprintf("v%04d", i), "gold")) })
	each(manyVolumes, func(i int) { s.bindClaim(fmt.Sprintf("v%04d", i)) })
	list := &storagev1alpha1.VolumeList{}
	perVendor := map[string]int{}
	err := wait.PollUntilContextTimeout(context.Background(), time.Second, 3*time.Minute, true, func(ctx context.Context) (bool, error) {
		if err := s.List(ctx, list, client.InNamespace(kubetest.DPUNamespace)); err != nil {
			return false, err
		}
		clear(perVendor)
		for i := range list.Items {
			if list.Items[i].Status.State == storagev1alpha1.VolumeAvailable {
				perVendor[list.Items[i].Spec.Volume.StorageVendorName]++
			}
		}
		return perVendor["a"]+perVendor["b"] == manyVolumes, nil
	})
	if err != nil {
		t.Fatalf("%v: Available per vendor: %v", err, perVendor)
	}
	rss := peakRSS(t, pid)
	t.Logf("%d volumes Available in %v, peak RSS %d kB, %v", manyVolumes, time.Since(began).Round(time.Second), rss, perVendor)
	if rss > maxRSSKBytes {
		t.Errorf("peak RSS %d kB, at most %d are allowed", rss, maxRSSKBytes)
	}
	if perVendor["a"] != perVendor["b"] {
		t.Errorf("uneven: %v", perVendor)
	}
}

// startProcess builds and runs snap-controller, and kills it when the test ends.
func (s *server) startProcess() int {
	s.t.Helper()
	binary := filepath.Join(s.t.TempDir(), "snap-controller")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		s.t.Fatalf("build: %v\n%s", err, out)
	}
	cmd := exec.Command(binary, "--kubeconfig", s.kubeconfig, "--config-namespace", kubetest.DPUNamespace,
		"--metrics-bind-address", "0", "--health-probe-bind-address", "0")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

// bindClaim plays the vendor for one volume.
func (s *server) bindClaim(volume string) {
	claim := &corev1.PersistentVolumeClaim{}
	key := client.ObjectKey{Namespace: kubetest.DPUNamespace, Name: volume + "-pvc"}
	err := wait.PollUntilContextTimeout(context.Background(), 100*time.Millisecond, 3*time.Minute, true, func(ctx context.Context) (bool, error) {
		return kube.Find(ctx, s, key, claim)
	})
	if err != nil {
		s.t.Errorf("claim of %s: %v", volume, err)
		return
	}
	pv := kubetest.VendorPV("pv-"+volume, claim.Name, "a.csi", corev1.PersistentVolumeReclaimDelete)
	pv.Spec.ClaimRef.UID = claim.UID
	ctx := context.Background()
	if err := s.Create(ctx, pv); err != nil {
		s.t.Error(err)
	}
	if _, err := kube.Patch(ctx, s, claim, func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = pv.Name }); err != nil {
		s.t.Error(err)
	}
	if _, err := kube.PatchStatus(ctx, s, claim, func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimBound }); err != nil {
		s.t.Error(err)
	}
}

// each calls do(0) to do(n-1), eight at a time.
func each(n int, do func(int)) {
	var wg sync.WaitGroup
	turn := make(chan struct{}, 8)
	for i := range n {
		turn <- struct{}{}
		wg.Go(func() {
			do(i)
			<-turn
		})
	}
	wg.Wait()
}

// peakRSS is the largest resident set of a process so far, in kB.
func peakRSS(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("no VmHWM")
	return 0
}
