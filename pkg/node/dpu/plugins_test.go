package dpu

import (
	"errors"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// TestSilentPluginIsSuspected: a plugin that does not answer is checked, one
// that refuses is not.
func TestSilentPluginIsSuspected(t *testing.T) {
	c, m, a := attached(t)
	c.must(c.Delete(t.Context(), a))
	for i, failure := range []error{provisioner.ErrPrecondition, provisioner.ErrUnavailable} {
		m.vendor.fail["DeleteDevice"] = failure
		if err := m.pass(a.Name); !errors.Is(err, failure) || m.vendor.suspected != i {
			t.Fatalf("got %v, suspected %d times", err, m.vendor.suspected)
		}
	}
}

// TestPluginChangeWakes: what waits for a plugin is looked at again, what is
// well is not.
func TestPluginChangeWakes(t *testing.T) {
	c, m, _ := attached(t)
	c.attachment("v2", "dpu-1")
	c.volume("v2", corev1.ReadWriteMany)
	c.must(os.Remove(m.pluginSocket()))
	if err := m.pass("dpu-1-v2"); err == nil {
		t.Fatal("attached without a plugin")
	}
	m.queue.AddWaiting(t.Context())
	if len(m.queue.Events()) != 1 {
		t.Fatalf("%d looked at again", len(m.queue.Events()))
	}
	if e := <-m.queue.Events(); e.Object.GetName() != "dpu-1-v2" {
		t.Fatalf("woke %s", e.Object.GetName())
	}
}
