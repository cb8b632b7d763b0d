// Package dpuctl is what people do about DPU clusters, beside what they do with kubectl.
package dpuctl

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/controller/hostcluster"
)

// session is how to reach the host cluster, and where its objects are.
type session struct {
	kubeconfig, namespace string
	timeout               time.Duration
}

// Command returns the command "dpu-cluster" with what is below it.
func Command() *cobra.Command {
	var s session
	cmd := &cobra.Command{Use: "dpu-cluster", Short: "Work on what the host cluster knows of its DPU clusters"}
	cmd.PersistentFlags().StringVar(&s.kubeconfig, "kubeconfig", "", "kubeconfig of the host cluster; empty: as kubectl finds it")
	cmd.PersistentFlags().StringVar(&s.namespace, "namespace", "dpf-operator-system", "namespace of the users' objects, as in snap-host-controller")
	cmd.PersistentFlags().DurationVar(&s.timeout, "timeout", time.Minute, "how long it may take")
	cmd.AddCommand(&cobra.Command{
		Use: "forget NAMESPACE/NAME", Short: "Take what one of several DPU clusters, which is gone for good, has left on vendors and policies off them; refused while anything is in it", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := s.connect()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), s.timeout)
			defer cancel()
			return forget(ctx, cmd.OutOrStdout(), c, s.namespace, args[0])
		},
	})
	return cmd
}

// connect returns a client of the host cluster.
func (s *session) connect() (client.Client, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = s.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find the host cluster: %w", err)
	}
	scheme, err := kube.NewScheme(coordinationv1.AddToScheme, storagev1alpha1.AddHostToScheme, moorv1alpha1.AddHostToScheme)
	if err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("reach the host cluster: %w", err)
	}
	return c, nil
}

// forget forgets a DPU cluster, and says what was changed.
func forget(ctx context.Context, out io.Writer, c client.Client, namespace, name string) error {
	if space, of, ok := strings.Cut(name, "/"); !ok || space == "" || of == "" || strings.Contains(of, "/") {
		return fmt.Errorf("DPU cluster %q: give NAMESPACE/NAME, as DPUStorageNodes have it in spec.dpuCluster", name)
	}
	forgotten, err := hostcluster.Clusters{Host: kube.Cluster{Client: c, Live: c}, Namespace: namespace, DPUCluster: name}.Forget(ctx)
	for _, o := range forgotten {
		fmt.Fprintln(out, o)
	}
	if err == nil && len(forgotten) == 0 {
		fmt.Fprintln(out, "nothing was left of it")
	}
	return err
}
