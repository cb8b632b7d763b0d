package provisionertest

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// TestAttachments checks the contract of provisioner.Attachments. Each case
// calls open for an empty platform of its own, which knows NodeA and NodeB.
func TestAttachments(t *testing.T, open func(t *testing.T) (provisioner.Volumes, provisioner.Attachments)) {
	t.Helper()
	cases := map[string]func(*testing.T, attachCase){
		"attach repeated":    attachRepeated,
		"attach wrongly":     attachWrongly,
		"single node":        attachSingleNode,
		"many nodes":         attachManyNodes,
		"detach is tolerant": detachTolerant,
		"detach all":         detachAll,
		"delete attached":    deleteAttached,
		"attach at once":     attachAtOnce,
	}
	for name, run := range cases {
		t.Run(name, func(t *testing.T) {
			v, a := open(t)
			run(t, attachCase{volumes: v, attachments: a})
		})
	}
}

type attachCase struct {
	volumes     provisioner.Volumes
	attachments provisioner.Attachments
}

// volume makes a volume and returns how to attach it to NodeA.
func (c attachCase) volume(t *testing.T, modes ...provisioner.AccessMode) provisioner.AttachSpec {
	t.Helper()
	spec := blockSpec("one")
	spec.AccessModes = modes
	v, err := c.volumes.Create(suiteContext(t), spec)
	wantNil(t, "create", err)
	return provisioner.AttachSpec{VolumeID: v.ID, Node: NodeA, AccessModes: modes, VolumeContext: v.Context}
}

func onNode(s provisioner.AttachSpec, node string) provisioner.AttachSpec {
	s.Node = node
	return s
}

func attachRepeated(t *testing.T, c attachCase) {
	ctx, spec := suiteContext(t), c.volume(t, provisioner.ReadWriteOnce)
	first, err := c.attachments.Attach(ctx, spec)
	wantNil(t, "attach", err)
	second, err := c.attachments.Attach(ctx, spec)
	wantNil(t, "attach again", err)
	if diff := cmp.Diff(first, second, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("repeated attach differs (-first +second):\n%s", diff)
	}
	spec.ReadOnly = true
	_, err = c.attachments.Attach(ctx, spec)
	wantError(t, "attach again, read only", err, provisioner.ErrExists)
}

func attachWrongly(t *testing.T, c attachCase) {
	ctx, spec := suiteContext(t), c.volume(t, provisioner.ReadWriteOnce)
	_, err := c.attachments.Attach(ctx, onNode(spec, ""))
	wantError(t, "attach to no node", err, provisioner.ErrInvalid, provisioner.ErrNotFound)
	spec.VolumeID = "no-such-volume"
	_, err = c.attachments.Attach(ctx, spec)
	wantError(t, "attach what never was", err, provisioner.ErrNotFound)
}

func attachSingleNode(t *testing.T, c attachCase) {
	ctx, spec := suiteContext(t), c.volume(t, provisioner.ReadWriteOnce)
	_, err := c.attachments.Attach(ctx, spec)
	wantNil(t, "attach", err)
	_, err = c.attachments.Attach(ctx, onNode(spec, NodeB))
	wantError(t, "attach to a second node", err, provisioner.ErrInUse)
	wantNil(t, "detach", c.attachments.Detach(ctx, spec.VolumeID, NodeA))
	_, err = c.attachments.Attach(ctx, onNode(spec, NodeB))
	wantNil(t, "attach to the second node after detach", err)
	_, err = c.attachments.Attach(ctx, spec)
	wantError(t, "attach to the first node again", err, provisioner.ErrInUse)
}

func attachManyNodes(t *testing.T, c attachCase) {
	ctx, spec := suiteContext(t), c.volume(t, provisioner.ReadWriteMany)
	for _, node := range []string{NodeA, NodeB} {
		_, err := c.attachments.Attach(ctx, onNode(spec, node))
		wantNil(t, "attach to "+node, err)
	}
	wantNil(t, "detach", c.attachments.Detach(ctx, spec.VolumeID, NodeA))
	wantError(t, "delete while the second node has it", c.volumes.Delete(ctx, spec.VolumeID), provisioner.ErrInUse)
}

func detachTolerant(t *testing.T, c attachCase) {
	ctx, spec := suiteContext(t), c.volume(t, provisioner.ReadWriteOnce)
	wantNil(t, "detach what never was", c.attachments.Detach(ctx, "no-such-volume", NodeA))
	wantNil(t, "detach what is not attached", c.attachments.Detach(ctx, spec.VolumeID, NodeA))
	_, err := c.attachments.Attach(ctx, spec)
	wantNil(t, "attach", err)
	wantNil(t, "detach from another node", c.attachments.Detach(ctx, spec.VolumeID, NodeB))
	_, err = c.attachments.Attach(ctx, onNode(spec, NodeB))
	wantError(t, "attach elsewhere, detach named another node", err, provisioner.ErrInUse)
	wantNil(t, "detach", c.attachments.Detach(ctx, spec.VolumeID, NodeA))
	wantNil(t, "detach again", c.attachments.Detach(ctx, spec.VolumeID, NodeA))
}

func detachAll(t *testing.T, c attachCase) {
	ctx, spec := suiteContext(t), c.volume(t, provisioner.ReadWriteMany)
	for _, node := range []string{NodeA, NodeB} {
		_, err := c.attachments.Attach(ctx, onNode(spec, node))
		wantNil(t, "attach to "+node, err)
	}
	wantNil(t, "detach from every node", c.attachments.Detach(ctx, spec.VolumeID, ""))
	wantNil(t, "delete", c.volumes.Delete(ctx, spec.VolumeID))
}

func deleteAttached(t *testing.T, c attachCase) {
	ctx, spec := suiteContext(t), c.volume(t, provisioner.ReadWriteOnce)
	_, err := c.attachments.Attach(ctx, spec)
	wantNil(t, "attach", err)
	wantError(t, "delete while attached", c.volumes.Delete(ctx, spec.VolumeID), provisioner.ErrInUse)
	_, err = c.volumes.Get(ctx, spec.VolumeID)
	wantNil(t, "get after a refused delete", err)
	wantNil(t, "detach", c.attachments.Detach(ctx, spec.VolumeID, NodeA))
	wantNil(t, "delete", c.volumes.Delete(ctx, spec.VolumeID))
}

// attachAtOnce: two nodes race for a single-node volume; one alone wins.
func attachAtOnce(t *testing.T, c attachCase) {
	ctx, spec := suiteContext(t), c.volume(t, provisioner.ReadWriteOnce)
	nodes := []string{NodeA, NodeB}
	_, errs := atOnce(func(i int) (struct{}, error) {
		return struct{}{}, untilCertain(ctx, func() error {
			_, err := c.attachments.Attach(ctx, onNode(spec, nodes[i%2]))
			return err
		})
	})
	won := map[string]bool{}
	for i, err := range errs {
		if err == nil {
			won[nodes[i%2]] = true
		} else if !errors.Is(err, provisioner.ErrInUse) {
			t.Fatalf("attach to %s: %v, want success or ErrInUse", nodes[i%2], err)
		}
	}
	if len(won) != 1 {
		t.Fatalf("nodes %v got a single-node volume at once, want exactly one of them", won)
	}
}
