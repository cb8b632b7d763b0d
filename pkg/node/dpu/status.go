package dpu

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/daemon"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/node/dpu/exposures"
)

// settle says what the status has to say of a pass that ended with err, when to
// look again, and which error to return. A wait of a pass that has changed
// nothing is left out of the status while the attachment is new.
func (p *pass) settle(err error, now time.Time) (message string, retry time.Duration, failure error) {
	out := kube.Settle(err, now)
	was := p.attachment.Status
	if out.StatusAfter == 0 || out.Message == was.Message || !equality.Semantic.DeepEqual(p.dpu, was.DPU) {
		return out.Message, out.RetryAfter, out.Err
	}
	if out.RetryAfter == 0 || out.StatusAfter < out.RetryAfter {
		out.RetryAfter = out.StatusAfter
	}
	return was.Message, out.RetryAfter, out.Err
}

// correct lets the pass know what SNAP shows now: a device that it does not show
// is not attached, whatever was written before. If SNAP does not answer, what was
// written stands.
func (p *pass) correct(ctx context.Context, shown *exposures.Exposures) {
	if !p.dpu.Attached && !p.dpu.PreEmulated {
		return
	}
	if all, _ := shown.List(ctx); all.Complete {
		e := all.Exposures[p.dpu.DeviceName]
		if !e.Visible {
			p.kept(shown.Incarnation(p.dpu.Provider))
			p.withdrawn()
		}
		p.dpu.PreEmulated = e.Hidden
	}
}

// contradicted reports whether the API server's answer to the status says something
// else of the device than the pass has found. Only what differs from the cache was
// written: where that was behind, the rest stands as an earlier pass wrote it. The
// change is on its way, and the pass it brings writes all.
func (p *pass) contradicted() bool {
	said, found := p.attachment.Status.DPU, p.dpu
	return said.Attached != found.Attached || said.PreEmulated != found.PreEmulated ||
		said.Epoch != found.Epoch || said.RetiredEpoch != found.RetiredEpoch || said.ClearedEpoch != found.ClearedEpoch ||
		said.Provider != found.Provider || said.Incarnation != found.Incarnation || said.Undrained != found.Undrained ||
		!ptr.Equal(said.OpenEpoch, found.OpenEpoch) || !ptr.Equal(said.KeptEpoch, found.KeptEpoch)
}

// status writes what passes found out.
type status struct {
	client client.Client
	// changed is told of what the heartbeat reports.
	changed func()
}

// write writes the status, if it differs.
func (s status) write(ctx context.Context, p *pass, message string) error {
	was := p.attachment.Status.DPU
	wrote, err := kube.PatchStatus(ctx, s.client, p.attachment, func(a *storagev1alpha1.VolumeAttachment) {
		a.Status.DPU, a.Status.Message = p.dpu, message
	})
	if wrote && (was.Attached != p.dpu.Attached || was.PreEmulated != p.dpu.PreEmulated || was.RetiredEpoch != p.dpu.RetiredEpoch) {
		ctrl.LoggerFrom(ctx).Info("attachment changed", "attached", p.dpu.Attached, "ready", p.dpu.PreEmulated, "function", p.dpu.PCIDeviceAddress,
			daemon.KeyEpoch, p.dpu.Epoch, "retired", p.dpu.RetiredEpoch)
		s.changed()
	}
	return err
}
