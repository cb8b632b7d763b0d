package csiserver

import (
	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/moor-storage/moor/pkg/provisioner"
)

var severities = map[provisioner.Severity]csi.VolumeHealthErrorType{
	provisioner.Degraded:     csi.VolumeHealthErrorType_DEGRADED,
	provisioner.Inaccessible: csi.VolumeHealthErrorType_INACCESSIBLE,
	provisioner.DataLoss:     csi.VolumeHealthErrorType_DATA_LOSS,
}

// VolumeHealth is the health of a volume as CSI tells of it.
func VolumeHealth(h provisioner.VolumeHealth) *csi.VolumeHealth {
	out := &csi.VolumeHealth{VolumeId: h.VolumeID}
	for _, p := range h.Problems {
		out.HealthStatuses = append(out.HealthStatuses, &csi.VolumeHealth_VolumeHealthEntry{
			Status: severities[p.Severity], Reason: p.Reason, Message: p.Message,
		})
	}
	return out
}
