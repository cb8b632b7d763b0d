//go:build sanity

// Package sanity runs csi-test's csi-sanity against the whole chain: the CSI
// controller over both API servers and every controller, the emulated DPU, and
// the node service of one host. It runs in that host's namespaces, where the
// node service mounts.
package sanity

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
)

var (
	controller = flag.String("controller", "", "CSI endpoint of the controller service")
	node       = flag.String("node", "", "CSI endpoint of the node service")
	access     = flag.String("access", "mount", "access type: mount or block")
)

// driverTimeout is generous: a call goes through two clusters.
const driverTimeout = 2 * time.Minute

func TestSanity(t *testing.T) {
	if *controller == "" || *node == "" {
		t.Fatal("-controller and -node are required: run `make sanity`")
	}
	work, err := os.MkdirTemp("", "moor-sanity-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(work)

	config := sanity.NewTestConfig()
	config.ControllerAddress = *controller
	config.Address = *node
	config.TargetPath = filepath.Join(work, "target")
	config.StagingPath = filepath.Join(work, "staging")
	config.TestVolumeSize = 32 << 20
	config.TestVolumeAccessType = *access
	config.TestVolumeParameters = map[string]string{"policy": "local"}
	config.TestVolumeExpandSize = 48 << 20
	config.TestVolumeMutableParameters = map[string]string{"iops": "1000"}
	config.IdempotentCount = 2

	gomega.RegisterFailHandler(ginkgo.Fail)
	gomega.SetDefaultEventuallyTimeout(driverTimeout)
	suite := sanity.GinkgoTest(&config)
	defer suite.Finalize()
	ginkgo.RunSpecs(t, "csi-sanity, "+*access)
}
