package pods

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestRevoke: the revocation pod sees the volume, the node that loses it, and the right to write that is taken.
func TestRevoke(t *testing.T) {
	node := &corev1.Node{}
	node.Name = "dpu-1"
	context, err := OfStaging(volumeOf("1Gi"), claimOf("1Gi", "", corev1.ReadWriteOnce), node, false)
	if err != nil {
		t.Fatal(err)
	}
	p := compiled(t, "volumeStaging.timeout", "1m")
	pod, err := p.Revoke(t.Context(), nil, context.For(Attachment{Namespace: "ns", Name: "a", UID: "a-1", Epoch: 7}))
	if err != nil || pod == nil {
		t.Fatal(pod, err)
	}
	if got := strings.Join(pod.Spec.Containers[0].Args, " "); got != "h'1 a-1 7 dpu-1" {
		t.Errorf("it is told %q", got)
	}
	if _, err := p.Revoke(t.Context(), nil, context); err == nil {
		t.Error("a volume that is used by a pod has an attachment")
	}
	if _, err := p.Revoke(t.Context(), nil, context.For(Attachment{UID: "a-1"})); err == nil || !strings.Contains(err.Error(), "epoch") {
		t.Errorf("without an epoch: %v", err)
	}
	without := compiled(t, "volumeRevocation", nil)
	if pod, err := without.Revoke(t.Context(), nil, context); pod != nil || err != nil || without.Revokes() != "" {
		t.Errorf("without a template: %v, %v, %q", pod, err, without.Revokes())
	}
}

// TestRevokes: it tells one template from another, and not how one is laid out.
func TestRevokes(t *testing.T) {
	of := func(template string) string {
		return compiledOf(t, []byte(`{"spec": {"provisioningModes": ["Static"], "volumeStaging": {"podTemplate": {"spec": {"containers": [{"name": "c"}]}}}, "volumeRevocation": {"podTemplate": `+template+`}}}`)).Revokes()
	}
	one := of(`{"spec": {"containers": [{"name": "c", "image": "i"}]}}`)
	if one == "" || one != of(`{"spec":{"containers":[ {"image": "i", "name": "c"} ]}}`) {
		t.Error("the same template in another layout is another")
	}
	if one == of(`{"spec": {"containers": [{"name": "c", "image": "j"}]}}`) {
		t.Error("another template is the same")
	}
}
