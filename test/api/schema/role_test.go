//go:build api

package schema

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/test/kit"
)

// TestRole: a replica becomes the primary, and never the other way; what reads
// only never writes.
func TestRole(t *testing.T) {
	const requester = "requester can only change with the promotion of a Replica"
	const oneWay = "role can only change from Replica to Primary"
	for _, row := range []struct {
		name          string
		before, after changes
		want          string
	}{
		{"promoted", changes{"spec.role": "Replica"}, changes{"spec.role": "Primary"}, ""},
		{"promoted by leaving it out", changes{"spec.role": "Replica"}, changes{"spec.role": nil}, ""},
		{"stays a replica", changes{"spec.role": "Replica"}, changes{"spec.role": "Replica"}, ""},
		{"demoted", changes{"spec.role": "Primary"}, changes{"spec.role": "Replica"}, oneWay},
		{"demoted from the default", changes{"spec.role": nil}, changes{"spec.role": "Replica"}, oneWay},
		{"read-only after all", nil, changes{"spec.readOnly": true}, "readOnly is immutable"},
		{"for writing after all", changes{"spec.readOnly": true}, changes{"spec.readOnly": false}, "readOnly is immutable"},
		{"for writing by leaving it out", changes{"spec.readOnly": true}, changes{"spec.readOnly": nil}, "readOnly is immutable"},
		{"reads only, said twice", changes{"spec.readOnly": true}, changes{"spec.readOnly": true}, ""},
		{"promoted by a node", changes{"spec.role": "Replica"}, changes{"spec.role": "Primary", "spec.requester": "Node"}, ""},
		{"taken from a node", changes{"spec.requester": "Node"}, changes{"spec.requester": nil}, requester},
		{"taken by a node", nil, changes{"spec.requester": "Node"}, requester},
		{"the controller's, said", nil, changes{"spec.requester": "Controller"}, ""},
		{"a replica of a node", changes{"spec.role": "Replica"}, changes{"spec.requester": "Node"}, "requester can only change"},
		{"promoted to another node", changes{"spec.role": "Replica"}, changes{"spec.role": "Primary", "spec.dpuNodeName": "node-2"}, "dpuNodeName is immutable"},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := object(t, "DPUVolumeAttachment")
			for path, value := range row.before {
				set(t, o, path, value)
			}
			mustCreate(t, o)
			for path, value := range row.after {
				set(t, o, path, value)
			}
			check(t, clusters.Host.Update(t.Context(), o), row.want)
		})
	}
}

func TestSelectByHolder(t *testing.T) {
	for _, holder := range []string{"holder-x", "holder-y"} {
		o := object(t, "WriterClaim")
		o.SetName(holder)
		mustCreate(t, o)
		set(t, o, "status", yamlText("{phase: Granted, epoch: 1, holder: "+holder+"}"))
		if err := clusters.DPU.Status().Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	var list moorv1alpha1.WriterClaimList
	err := clusters.DPU.List(t.Context(), &list, client.InNamespace(kit.Namespace), client.MatchingFields{"status.holder": "holder-x"})
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != "holder-x" {
		t.Errorf("got %v, %v; want holder-x alone", list.Items, err)
	}
}
