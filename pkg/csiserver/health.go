package csiserver

import (
	csispec "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/moor-storage/moor/pkg/provisioner"
)

var severities = map[provisioner.Severity]csispec.VolumeHealthErrorType{
	provisioner.Degraded:     csispec.VolumeHealthErrorType_DEGRADED,
	provisioner.Inaccessible: csispec.VolumeHealthErrorType_INACCESSIBLE,
	provisioner.DataLoss:     csispec.VolumeHealthErrorType_DATA_LOSS,
}

// VolumeHealth is the health of a volume as CSI tells of it: the first problem
// of each kind (CSI spec: no two entries with the same status and reason).
func VolumeHealth(h provisioner.VolumeHealth) *csispec.VolumeHealth {
	out := &csispec.VolumeHealth{VolumeId: h.VolumeID}
	type kind struct {
		severity provisioner.Severity
		reason   string
	}
	seen := map[kind]bool{}
	for _, p := range h.Problems {
		k := kind{p.Severity, p.Reason}
		if seen[k] {
			continue
		}
		seen[k] = true
		out.HealthStatuses = append(out.HealthStatuses, &csispec.VolumeHealth_VolumeHealthEntry{
			Status: severities[p.Severity], Reason: p.Reason, Message: p.Message,
		})
	}
	return out
}
