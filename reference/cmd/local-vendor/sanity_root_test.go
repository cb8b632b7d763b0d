//go:build root

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/moor-storage/moor/test/kit"
)

// specsOfSanity is how many specs csi-test v5.6.0 has, one of which it never
// runs.
const specsOfSanity = 103

// TestSanity holds the driver of one machine to csi-sanity, as file systems, as block
// devices and as directories: everything is announced, so nothing is skipped.
func TestSanity(t *testing.T) {
	modes := []string{"mount", "block", "directory"}
	for _, mode := range modes {
		config := sanityDriver(t, mode)
		if mode == "directory" {
			config.TestVolumeAccessType, config.TestVolumeParameters = "mount", map[string]string{"kind": mode}
			config.TestVolumeMutableParameters = map[string]string{"iops": "0"} // it has no limits, and 0 is none
		}
		ginkgo.Describe(mode, func() { sanity.GinkgoTest(config) })
	}
	states := map[types.SpecState]int{}
	ginkgo.ReportAfterEach(func(r ginkgo.SpecReport) {
		states[r.State]++
		if r.State == types.SpecStateSkipped {
			t.Errorf("skipped: %s: %s", r.FullText(), r.Failure.Message)
		}
	})
	gomega.RegisterFailHandler(ginkgo.Fail)
	ginkgo.RunSpecs(t, "CSI sanity")
	if want := len(modes) * (specsOfSanity - 1); states[types.SpecStatePassed] != want {
		t.Errorf("%d specs passed, want %d: %v", states[types.SpecStatePassed], want, states)
	}
}

// sanityDriver runs a driver and returns how to test it.
func sanityDriver(t *testing.T, access string) *sanity.TestConfig {
	t.Helper()
	dir, err := os.MkdirTemp("", "lv") // short: the path of a unix socket is limited
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	endpoint := "unix://" + filepath.Join(dir, "csi.sock")
	run(t, "--mode=driver", "--node-id=n-"+access, "--endpoint="+endpoint, "--target-dir="+filepath.Join(dir, "volumes"),
		"--device-dir="+filepath.Join(dir, "devices"), "--max-volumes-per-node=4", "--metrics-bind-address=0")
	eventually(t, "the driver serves", func() bool { _, err := os.Stat(filepath.Join(dir, "csi.sock")); return err == nil })
	config := sanity.NewTestConfig()
	config.Address = endpoint
	config.DialOptions = []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)),
		grpc.WithUnaryInterceptor(kit.Sized),
	}
	config.ControllerDialOptions = config.DialOptions
	config.TargetPath, config.StagingPath = filepath.Join(dir, "target"), filepath.Join(dir, "staging")
	config.TestVolumeAccessType = access
	config.TestVolumeSize, config.TestVolumeExpandSize = 16<<20, 32<<20
	config.TestNodeVolumeAttachLimit = true
	config.TestVolumeMutableParameters = map[string]string{"iops": "1000", "bytesPerSecond": "100000000"}
	config.IdempotentCount = 3
	return &config
}
