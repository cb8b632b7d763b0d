package devcluster

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	"github.com/moor-storage/moor/test/devcluster/layout"
	"github.com/moor-storage/moor/test/devcluster/pki"
)

// tokenLifetime outlasts any bed.
const tokenLifetime = 7 * 24 * time.Hour

// WriteKubeconfig writes a kubeconfig that acts as a ServiceAccount, which must
// exist, and returns its path, the same in every machine. The token lives for a
// week. Calling it again replaces the file.
func (c *Cluster) WriteKubeconfig(ctx context.Context, cluster, namespace, serviceAccount string) (string, error) {
	return c.writeKubeconfig(ctx, cluster, namespace, serviceAccount, nil)
}

// WriteNodeKubeconfig is WriteKubeconfig for a process on one node: the token is
// bound to the Node, as that of a pod there would be.
func (c *Cluster) WriteNodeKubeconfig(ctx context.Context, cluster, namespace, serviceAccount, node string) (string, error) {
	return c.writeKubeconfig(ctx, cluster, namespace, serviceAccount, &authenticationv1.BoundObjectReference{Kind: "Node", APIVersion: "v1", Name: node})
}

func (c *Cluster) writeKubeconfig(ctx context.Context, cluster, namespace, serviceAccount string, bound *authenticationv1.BoundObjectReference) (string, error) {
	if c.configs[cluster] == nil {
		return "", fmt.Errorf("write a kubeconfig for cluster %q: want one of %v", cluster, slices.Sorted(maps.Keys(c.configs)))
	}
	client, err := c.client(cluster)
	if err != nil {
		return "", err
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: ptr.To(int64(tokenLifetime / time.Second)), BoundObjectRef: bound,
	}}
	token, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, serviceAccount, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("get a token of ServiceAccount %s/%s in the %s cluster: %w", namespace, serviceAccount, cluster, err)
	}
	dir := filepath.Join(layout.StateDir, "kubeconfigs")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make the directory of kubeconfigs: %w", err)
	}
	name := fmt.Sprintf("%s-%s-%s", cluster, namespace, serviceAccount)
	if bound != nil {
		name += "-" + bound.Name
	}
	path := filepath.Join(dir, name+".kubeconfig")
	config := c.configs[cluster]
	err = pki.WriteKubeconfig(path, config.Host, config.CAData, &clientcmdapi.AuthInfo{Token: token.Status.Token})
	return path, err
}
