//go:build api

package priority

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/test/api/apiserver"
	"github.com/moor-storage/moor/test/kit"
)

var clusters apiserver.Clusters

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m, &clusters)) }

// seen keeps what a server said of the last request: by which FlowSchema it was
// ordered, and at which level.
type seen struct {
	http.RoundTripper
	schema, level string
}

// RoundTrip implements http.RoundTripper.
func (s *seen) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := s.RoundTripper.RoundTrip(r)
	if err == nil {
		s.schema = answer.Header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID)
		s.level = answer.Header.Get(flowcontrolv1.ResponseHeaderMatchedPriorityLevelConfigurationUID)
	}
	return answer, err
}

// as is a client of an account, and what its last request was taken for.
func as(t *testing.T, config *rest.Config, admin client.Client, account string) (client.Client, *seen) {
	t.Helper()
	s := &seen{}
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + kit.Namespace + ":" + account,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + kit.Namespace, "system:authenticated"},
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { s.RoundTripper = next; return s })
	c, err := client.New(config, client.Options{Scheme: admin.Scheme(), Mapper: admin.RESTMapper()})
	if err != nil {
		t.Fatal(err)
	}
	return c, s
}

// TestLevels: heartbeats are ordered with those of kubelets, leases of leaders with
// others', and what a failover asks for before what else ServiceAccounts ask for.
func TestLevels(t *testing.T) {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: kit.Namespace, Name: "x"}}
	node := &moorv1alpha1.DPUStorageNode{ObjectMeta: metav1.ObjectMeta{Name: "x"}}
	claim := &moorv1alpha1.WriterClaim{ObjectMeta: metav1.ObjectMeta{Namespace: kit.Namespace, Name: "x"}}
	there := &storagev1alpha1.VolumeAttachment{ObjectMeta: claim.ObjectMeta}
	here := &storagev1alpha1.DPUVolumeAttachment{ObjectMeta: claim.ObjectMeta}
	for cluster, c := range map[string]struct {
		config *rest.Config
		admin  client.Client
		cases  []ordered
	}{
		apiserver.Host: {clusters.HostConfig, clusters.Host, []ordered{
			{"snap-host-controller", lease, "moor-leases", "leader-election"},
			{"snap-host-controller", here, "moor-failover", "workload-high"},
			{"snap-host-controller", node, "moor-failover", "workload-high"},
			{"snap-csi-plugin-controller", lease, "moor-leases", "leader-election"},
			{"snap-csi-plugin-controller", here, "service-accounts", "workload-low"},
			{"snap-csi-plugin-node", lease, "moor-heartbeats", "node-high"},
			{"snap-csi-plugin-node", node, "moor-heartbeats", "node-high"},
			{"snap-csi-plugin-node", here, "service-accounts", "workload-low"},
		}},
		apiserver.DPU: {clusters.DPUConfig, clusters.DPU, []ordered{
			{"snap-host-controller", claim, "moor-failover", "workload-high"},
			{"snap-controller", lease, "moor-leases", "leader-election"},
			{"snap-controller", there, "moor-failover", "workload-high"},
			{"snap-external-attacher", there, "moor-failover", "workload-high"},
			{"snap-node-driver", lease, "moor-heartbeats", "node-high"},
			{"snap-node-driver", node, "moor-heartbeats", "node-high"},
			{"snap-node-driver", claim, "moor-failover", "workload-high"},
			{"local-vendor-controller", there, "service-accounts", "workload-low"},
		}},
	} {
		t.Run(cluster, func(t *testing.T) {
			if err := kit.Apply(t.Context(), c.admin, filepath.Join("..", "..", "..", "deploy", cluster)); err != nil {
				t.Fatal(err)
			}
			for _, want := range c.cases {
				want.check(t, c.config, c.admin)
			}
		})
	}
}

// ordered is what an account reads, and how the API server has to order that.
type ordered struct {
	account       string
	reads         client.Object
	schema, level string
}

func (o ordered) check(t *testing.T, config *rest.Config, admin client.Client) {
	t.Helper()
	c, saw := as(t, config, admin, o.account)
	var schema, level string
	// A FlowSchema is in force some time after it is there.
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		_ = c.Get(ctx, client.ObjectKeyFromObject(o.reads), o.reads.DeepCopyObject().(client.Object)) // there is none, or no right to it
		var err error
		schema, level, err = names(ctx, admin, saw)
		return schema == o.schema && level == o.level, err
	})
	if err != nil {
		t.Errorf("%s reads a %T: %s at %s, want %s at %s (%v)", o.account, o.reads, schema, level, o.schema, o.level, err)
	}
}

// names are those of the FlowSchema and the level.
func names(ctx context.Context, admin client.Client, saw *seen) (schema, level string, err error) {
	var schemas flowcontrolv1.FlowSchemaList
	var levels flowcontrolv1.PriorityLevelConfigurationList
	if err := admin.List(ctx, &schemas); err != nil {
		return "", "", err
	}
	if err := admin.List(ctx, &levels); err != nil {
		return "", "", err
	}
	for i := range schemas.Items {
		if string(schemas.Items[i].UID) == saw.schema {
			schema = schemas.Items[i].Name
		}
	}
	for i := range levels.Items {
		if string(levels.Items[i].UID) == saw.level {
			level = levels.Items[i].Name
		}
	}
	return schema, level, nil
}
