package world

import (
	"context"
	"fmt"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/test/kit"
)

// squeezed is the name of what makes an API server refuse.
const squeezed = "moor-squeezed"

// Squeeze lets both API servers serve Moor's accounts hardly a request at a time, and
// refuse all others with 429, leases apart: who leads is not in question.
func (c *Clusters) Squeeze(ctx context.Context) error {
	level := &flowcontrolv1.PriorityLevelConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: squeezed},
		Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
			Type: flowcontrolv1.PriorityLevelEnablementLimited,
			Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
				NominalConcurrencyShares: ptr.To[int32](1), LendablePercent: ptr.To[int32](0), BorrowingLimitPercent: ptr.To[int32](0),
				LimitResponse: flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject},
			},
		},
	}
	schema := &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: squeezed},
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: squeezed}, MatchingPrecedence: 2,
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects: []flowcontrolv1.Subject{{Kind: flowcontrolv1.SubjectKindGroup, Group: &flowcontrolv1.GroupSubject{Name: "system:serviceaccounts:" + kit.Namespace}}},
				ResourceRules: []flowcontrolv1.ResourcePolicyRule{{
					Verbs: []string{"*"}, APIGroups: squeezedGroups, Resources: []string{"*"}, ClusterScope: true, Namespaces: []string{"*"},
				}},
			}},
		},
	}
	for _, to := range []client.Client{c.Unlimited.Host, c.Unlimited.DPU} {
		for _, o := range []client.Object{level.DeepCopy(), schema.DeepCopy()} {
			if _, err := kube.Create(ctx, to, o); err != nil {
				return fmt.Errorf("make an API server refuse: %w", err)
			}
		}
	}
	return nil
}

// squeezedGroups are the groups of what Moor reads and writes, but that of leases.
var squeezedGroups = []string{"", "events.k8s.io", "storage.k8s.io", "storage.dpu.nvidia.com", "storage.moor.dev"}

// Loosen takes the squeeze away.
func (c *Clusters) Loosen(ctx context.Context) error {
	for _, from := range []client.Client{c.Unlimited.Host, c.Unlimited.DPU} {
		for _, o := range []client.Object{&flowcontrolv1.FlowSchema{}, &flowcontrolv1.PriorityLevelConfiguration{}} {
			o.SetName(squeezed)
			if err := client.IgnoreNotFound(from.Delete(ctx, o)); err != nil {
				return fmt.Errorf("let an API server serve again: %w", err)
			}
		}
	}
	return nil
}
