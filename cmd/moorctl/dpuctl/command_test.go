package dpuctl

import (
	"bytes"
	"strings"
	"testing"

	"github.com/moor-storage/moor/internal/kube/kubetest"
)

func TestForget(t *testing.T) {
	w := kubetest.New(t)
	for name, words := range map[string]string{
		"":             "give NAMESPACE/NAME",
		"west":         "give NAMESPACE/NAME",
		"/west":        "give NAMESPACE/NAME",
		"tenants/":     "give NAMESPACE/NAME",
		"a/b/c":        "give NAMESPACE/NAME",
		"tenants/west": "",
	} {
		var out bytes.Buffer
		err := forget(t.Context(), &out, w.Host.Client, kubetest.HostNamespace, name)
		if words == "" && (err != nil || out.String() != "nothing was left of it\n") || words != "" && (err == nil || !strings.Contains(err.Error(), words)) {
			t.Errorf("%q: %v, %q", name, err, out.String())
		}
	}
	n := kubetest.DPUStorageNode("a")
	n.Spec.DPUCluster = "tenants/west"
	w.Host.Add(n)
	if err := forget(t.Context(), &bytes.Buffer{}, w.Host.Client, kubetest.HostNamespace, "tenants/west"); err == nil || !strings.Contains(err.Error(), "DPUStorageNode a") {
		t.Errorf("with a host in it: %v", err)
	}
}

// TestNoCluster: what cannot be reached is said.
func TestNoCluster(t *testing.T) {
	cmd := Command()
	cmd.SetArgs([]string{"forget", "tenants/west", "--kubeconfig=/nowhere"})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "find the host cluster") || !strings.Contains(err.Error(), "/nowhere") {
		t.Errorf("got %v", err)
	}
}
