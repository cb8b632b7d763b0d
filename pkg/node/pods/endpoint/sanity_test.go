package endpoint

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/moor-storage/moor/pkg/csiserver"
)

// needVolumes are the specs of csi-sanity that make a volume by CreateVolume: the driver of a provisioner is a
// node service alone, whose volumes come of claims.
var needVolumes = []string{
	"at a different target path",
	"should remove target path",
	"should fail when volume does not exist on the specified path",
	"should return health for a valid volume",
}

// TestSanity holds the driver of a provisioner to csi-sanity, as far as it is about nodes and tries it without a
// volume.
func TestSanity(t *testing.T) {
	dir, err := os.MkdirTemp("", "pav") // short: the path of a unix socket is limited
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := "unix://" + filepath.Join(dir, "csi.sock")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	service := newBed(t).Server
	go func() {
		done <- csiserver.Serve(ctx, socket, func(s *grpc.Server) {
			csispec.RegisterIdentityServer(s, csiserver.NewIdentity(driver+".example.com", "test", nil))
			csispec.RegisterNodeServer(s, service)
		}, csiserver.Options{Key: Key})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	config := sanity.NewTestConfig()
	config.Address = socket
	config.DialOptions = []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true))}
	config.ControllerDialOptions = config.DialOptions
	config.TargetPath, config.StagingPath = filepath.Join(dir, "target"), filepath.Join(dir, "staging")
	suite := sanity.GinkgoTest(&config)
	defer suite.Finalize()
	passed := 0
	ginkgo.ReportAfterEach(func(r ginkgo.SpecReport) {
		if r.State == types.SpecStatePassed {
			passed++
		}
	})
	gomega.RegisterFailHandler(ginkgo.Fail)
	about, reporter := ginkgo.GinkgoConfiguration()
	about.FocusStrings, about.SkipStrings = []string{"Node Service", "Identity Service"}, needVolumes
	ginkgo.RunSpecs(t, "csi-sanity of a provisioner", about, reporter)
	if passed < 12 {
		t.Errorf("only %d specs passed", passed)
	}
}
