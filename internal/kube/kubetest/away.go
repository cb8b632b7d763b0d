package kubetest

import (
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Away writes the kubeconfig of an API server that does not answer, and returns its path.
func Away(t *testing.T) string {
	t.Helper()
	out := clientcmdapi.NewConfig()
	out.Clusters["c"] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:1"}
	out.Contexts["x"], out.CurrentContext = &clientcmdapi.Context{Cluster: "c"}, "x"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*out, path); err != nil {
		t.Fatal(err)
	}
	return path
}
