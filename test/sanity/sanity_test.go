//go:build sanity

// Package sanity runs csi-test's csi-sanity, and what that leaves out, against the
// whole chain: the CSI controller over both API servers and every controller, the
// emulated DPU, and the node service of one host. It runs in that host's
// namespaces, where the node service mounts. By its flags it tries another driver
// of that host.
package sanity

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/gomega"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/moor-storage/moor/test/kit"
	"github.com/moor-storage/moor/test/skips"
	"github.com/moor-storage/moor/test/specs"
)

var (
	controller = flag.String("controller", "", "CSI endpoint of the controller service")
	node       = flag.String("node", "", "CSI endpoint of the node service")
	access     = flag.String("access", "mount", "access type: mount or block")
	parameter  = flag.String("parameter", "policy=local", "what the StorageClass says of volumes: key=value")
	iops       = flag.String("iops", "1000", "a limit that volumes can be changed to")
)

// size of a volume, in bytes.
const size = 32 << 20

// parameters are those of the StorageClass.
func parameters() map[string]string {
	key, value, _ := strings.Cut(*parameter, "=")
	return map[string]string{key: value}
}

// tells waits until the vendor has told how much room it has: a policy that was
// made a moment ago does not know yet.
func tells(ctx context.Context, endpoint string) error {
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("reach the controller service: %w", err)
	}
	defer func() { _ = conn.Close() }()
	var last error
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, driverTimeout, true, func(ctx context.Context) (bool, error) {
		_, last = csispec.NewControllerClient(conn).GetCapacity(ctx, &csispec.GetCapacityRequest{})
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait until the vendor tells of its room: %w: %w", err, last)
	}
	return nil
}

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

	if err := tells(t.Context(), *controller); err != nil {
		t.Fatal(err)
	}
	config := sanity.NewTestConfig()
	config.ControllerAddress = *controller
	config.Address = *node
	config.DialOptions = []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithUnaryInterceptor(kit.Sized)}
	config.ControllerDialOptions = config.DialOptions
	config.TargetPath = filepath.Join(work, "target")
	config.StagingPath = filepath.Join(work, "staging")
	config.TestVolumeSize = size
	config.TestVolumeAccessType = *access
	config.TestVolumeParameters = parameters()
	config.TestVolumeExpandSize = 48 << 20
	config.TestVolumeMutableParameters = map[string]string{"iops": *iops}
	config.IdempotentCount = 2
	config.TestNodeVolumeAttachLimit = true

	gomega.SetDefaultEventuallyTimeout(driverTimeout)
	suite := sanity.GinkgoTest(&config)
	defer suite.Finalize()
	specs.Run(t, "csi-sanity, "+*access, skips.Sanity)
}
